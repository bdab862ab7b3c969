// Holds threads up at random where they wait, send, receive, lock and begin: a library to preload (scripts/stress).
// What is right only because a thread is quick enough, or because another has not come yet, then shows.
//   LAYERCAST_DELAY_ONE_IN       how many such calls there are for one that is held up (60); locks are held up less
//   LAYERCAST_DELAY_LONGEST_US   for how long at most (6000); one in forty takes ten times that
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#define LAYERCAST_INTERPOSED extern "C" __attribute__((visibility("default")))

namespace layercast::testing {
namespace {

std::uint64_t Setting(const char* name, std::uint64_t otherwise) {
  const char* const given = std::getenv(name);
  return given == nullptr ? otherwise : std::strtoull(given, nullptr, 10);
}

std::uint64_t Random(std::uint64_t below) {
  thread_local std::minstd_rand source{std::random_device{}()};
  return source() % below;
}

// Returns later, or mostly at once. `rarer`: by how much less often than others.
void MayHoldUp(std::uint64_t rarer = 1) {
  static const std::uint64_t one_in = Setting("LAYERCAST_DELAY_ONE_IN", 60);
  static const std::uint64_t longest_us = Setting("LAYERCAST_DELAY_LONGEST_US", 6000);
  thread_local bool inside = false;  // what this calls may be interposed, too
  if (inside) return;
  inside = true;
  const int error = errno;
  if (Random(one_in * rarer) == 0) {
    const std::uint64_t us = Random(40) == 0 ? 10 * longest_us : Random(longest_us);
    std::this_thread::sleep_for(std::chrono::microseconds(us));
  }
  errno = error;
  inside = false;
}

// The function that this one stands before.
template <typename Function>
Function* Next(Function* /*for its type*/, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

constexpr std::uint64_t kLocks = 20;  // there are many more of them

// Calls `function` with a delay before and after it.
template <typename Function, typename... Arguments>
auto Held(Function* function, Arguments... arguments) {
  MayHoldUp();
  const auto result = function(arguments...);
  MayHoldUp();
  return result;
}

struct Beginning {
  void* (*run)(void*);
  void* argument;
};

void* BeginLate(void* beginning) {
  const std::unique_ptr<Beginning> thread(static_cast<Beginning*>(beginning));
  for (int i = 0; i < 20; ++i) MayHoldUp();  // the first steps of a thread are those that others count on
  return thread->run(thread->argument);
}

}  // namespace
}  // namespace layercast::testing

using layercast::testing::BeginLate;
using layercast::testing::Beginning;
using layercast::testing::Held;
using layercast::testing::kLocks;
using layercast::testing::MayHoldUp;
using layercast::testing::Next;

LAYERCAST_INTERPOSED int poll(pollfd* items, nfds_t count, int timeout) {
  static const auto next = Next(&::poll, "poll");
  return Held(next, items, count, timeout);
}

LAYERCAST_INTERPOSED int ppoll(pollfd* items, nfds_t count, const timespec* timeout, const sigset_t* signals) {
  static const auto next = Next(&::ppoll, "ppoll");
  return Held(next, items, count, timeout, signals);
}

LAYERCAST_INTERPOSED ssize_t send(int fd, const void* bytes, std::size_t size, int flags) {
  static const auto next = Next(&::send, "send");
  return Held(next, fd, bytes, size, flags);
}

LAYERCAST_INTERPOSED ssize_t recv(int fd, void* bytes, std::size_t size, int flags) {
  static const auto next = Next(&::recv, "recv");
  return Held(next, fd, bytes, size, flags);
}

LAYERCAST_INTERPOSED ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto next = Next(&::sendmsg, "sendmsg");
  return Held(next, fd, message, flags);
}

LAYERCAST_INTERPOSED ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static const auto next = Next(&::recvmsg, "recvmsg");
  return Held(next, fd, message, flags);
}

LAYERCAST_INTERPOSED ssize_t read(int fd, void* bytes, std::size_t size) {
  static const auto next = Next(&::read, "read");
  return Held(next, fd, bytes, size);
}

LAYERCAST_INTERPOSED ssize_t write(int fd, const void* bytes, std::size_t size) {
  static const auto next = Next(&::write, "write");
  return Held(next, fd, bytes, size);
}

LAYERCAST_INTERPOSED int connect(int fd, const sockaddr* address, socklen_t length) {
  static const auto next = Next(&::connect, "connect");
  return Held(next, fd, address, length);
}

LAYERCAST_INTERPOSED int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  static const auto next = Next(&::accept4, "accept4");
  return Held(next, fd, address, length, flags);
}

LAYERCAST_INTERPOSED int close(int fd) {
  static const auto next = Next(&::close, "close");
  return Held(next, fd);
}

LAYERCAST_INTERPOSED int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static const auto next = Next(&::pthread_mutex_lock, "pthread_mutex_lock");
  MayHoldUp(kLocks);
  const int result = next(mutex);
  MayHoldUp(kLocks);
  return result;
}

LAYERCAST_INTERPOSED int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  static const auto next = Next(&::pthread_mutex_unlock, "pthread_mutex_unlock");
  const int result = next(mutex);
  MayHoldUp(kLocks);
  return result;
}

LAYERCAST_INTERPOSED int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  static const auto next = Next(&::pthread_cond_signal, "pthread_cond_signal");
  return Held(next, condition);
}

LAYERCAST_INTERPOSED int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  static const auto next = Next(&::pthread_cond_broadcast, "pthread_cond_broadcast");
  return Held(next, condition);
}

LAYERCAST_INTERPOSED int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                                        void* argument) noexcept {
  static const auto next = Next(&::pthread_create, "pthread_create");
  auto beginning = std::make_unique<Beginning>(Beginning{run, argument});
  const int error = Held(next, thread, attributes, &BeginLate, static_cast<void*>(beginning.get()));
  if (error == 0) static_cast<void>(beginning.release());
  return error;
}
