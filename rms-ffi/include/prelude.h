/*
 * An application negotiates its size with the resource management system (RMS) that runs it.
 *
 *     rms_session *rms;
 *     if (rms_connect(NULL, &rms) != RMS_OK) ...
 *
 * rms(3) and the guide "From C, C++ and Fortran" tell the whole story. In short:
 *
 * Results. Every function that returns int returns RMS_OK, or RMS_NOTHING, or a negative RMS_E... number; then
 * rms_last_error() has the reason in words. Nothing crashes because of a NULL, a closed session or a foreign number.
 *
 * Structs begin with their size: declare them with RMS_INIT, as in
 *     rms_event event = RMS_INIT(rms_event);
 *
 * Threads. Every function may be called from every thread at any time, also for the same session. A session has
 * threads of its own, in which all signals are blocked.
 *
 * Fork. A child that was forked after rms_connect() may call exec or _exit. Calls of the library fail with RMS_EFORK
 * there.
 *
 * Rates. A job may call rms_connect() and rms_declare(), and release nodes for a stage, 100 times in a second, and say
 * 10000 other things to the RMS. More is refused; 5 such seconds in a row end the job as a violation. Calls that only
 * look, like rms_breakpoint(), rms_nodes() and rms_next_event(), are free.
 *
 * Times are milliseconds, prices are thousandths for a node and an hour.
 */

/* The size of a struct is set, and all else is 0. */
#ifdef __cplusplus
template <typename T> inline T rms_init() {
    T value = T();
    value.size = sizeof(T);
    return value;
}
#define RMS_INIT(type) rms_init<type>()
#else
#define RMS_INIT(type) ((type){.size = sizeof(type)})
#endif
