/*
 * An application negotiates its size with the resource management system (RMS) that runs it.
 *
 *     rms_session *rms;
 *     if (rms_connect(NULL, &rms) != RMS_OK) ...
 *
 * See rms(3) and the guide "From C, C++ and Fortran" for the full documentation. In short:
 *
 * Results. Every function that returns int returns RMS_OK, RMS_NOTHING, or a negative RMS_E... number; then
 * rms_last_error() gives the reason as text. A NULL, a closed session or an invalid number is an error, not a crash.
 *
 * Structs begin with their size: declare them with RMS_INIT, as in
 *     rms_event event = RMS_INIT(rms_event);
 *
 * Threads. Every function may be called from every thread at any time, also for the same session. A session has
 * threads of its own, in which all signals are blocked.
 *
 * Fork. A child that was forked after rms_connect() may only call exec or _exit. Calls of the library fail with
 * RMS_EFORK there.
 *
 * Rates. A job may call rms_connect() and rms_declare(), and release nodes for a stage, 100 times per second, and send
 * 10000 other requests to the RMS. More are refused; 5 such seconds in a row end the job as a violation. Calls that
 * send nothing, like rms_breakpoint(), rms_nodes() and rms_next_event(), are not limited.
 *
 * Times are in milliseconds, but for fields that end in _s (seconds); prices are in thousandths per node and hour.
 */

/* Sets the size of a struct, and all else to 0. */
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
