// A program with std::thread that is called back when the CPUs of its job change, and has as many workers as CPUs.
//
// Prints `threads CPUs` whenever one of them has changed, until the file `done` is there.
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include "rms_malleable.h"

namespace {

// Workers that can be told to be more, or fewer.
class Pool {
public:
    // Returns when no more than so many use CPUs.
    void resize(unsigned wanted)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        wanted_ = wanted;
        while (workers_.size() < wanted)
            workers_.emplace_back(&Pool::work, this, static_cast<unsigned>(workers_.size()));
        changed_.notify_all();
        changed_.wait(lock, [&] { return n_busy_ <= wanted; });
    }

    void stop()
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            is_over_ = true;
        }
        changed_.notify_all();
        for (std::thread &worker : workers_)
            worker.join();
    }

    unsigned busy()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return n_busy_;
    }

private:
    void work(unsigned number)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!is_over_) {
            if (number >= wanted_) {
                changed_.wait(lock);
                continue;
            }
            n_busy_ += 1;
            lock.unlock();
            // A piece of work.
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            lock.lock();
            n_busy_ -= 1;
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::thread> workers_;
    unsigned wanted_ = 0, n_busy_ = 0;
    bool is_over_ = false;
};

std::atomic<unsigned> n_threads{0};

void changed(int n_cpus, void *argument)
{
    static_cast<Pool *>(argument)->resize(static_cast<unsigned>(n_cpus));
    n_threads = static_cast<unsigned>(n_cpus);
}

int n_cpus()
{
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return CPU_COUNT(&set);
}

}  // namespace

int main()
{
    Pool pool;
    if (rms_malleable_watch(changed, &pool) != RMS_MALLEABLE_OK)
        changed(static_cast<int>(std::thread::hardware_concurrency()), &pool);
    unsigned told_threads = 0;
    int told_cpus = 0;
    while (access("done", F_OK) != 0) {
        unsigned threads = n_threads;
        int cpus = n_cpus();
        if (threads != told_threads || cpus != told_cpus) {
            std::printf("%u %d\n", threads, cpus);
            std::fflush(stdout);
        }
        told_threads = threads;
        told_cpus = cpus;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    rms_malleable_unwatch();
    pool.stop();
    return 0;
}
