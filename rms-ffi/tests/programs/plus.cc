// The header in C++: structs, constants, and exceptions that pass by the library's calls.
#include <rms.h>

#include <cstdio>
#include <stdexcept>
#include <string>

namespace {

std::string last_error() {
    std::string text(rms_last_error(nullptr, 0), '\0');
    rms_last_error(text.data(), text.size() + 1);
    return text;
}

class Session {
public:
    explicit Session(const rms_options &options) {
        if (rms_connect(&options, &session_) != RMS_OK)
            throw std::runtime_error(last_error());
    }
    ~Session() { rms_close(session_); }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

private:
    rms_session *session_ = nullptr;
};

}  // namespace

int main() {
    rms_options options = RMS_INIT(rms_options);
    options.timeout_ms = 1000;
    rms_event event = RMS_INIT(rms_event);
    static_assert(RMS_EINVAL < 0 && -RMS_EINVAL > 0, "they can be negated");
    try {
        Session session(options);
    } catch (const std::runtime_error &error) {
        std::printf("%s: %s\n", rms_version(), error.what());
    }
    return event.size == sizeof(rms_event) && event.text == nullptr ? 0 : 1;
}
