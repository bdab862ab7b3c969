#include "src/base/exhausted.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "src/base/unique_fd.h"

namespace layercast {
namespace {

// Null if there is no limit.
std::optional<std::uint64_t> LimitOf(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return std::nullopt;
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

// Bytes of address space; 0 if the system does not tell, as when no descriptor is left.
std::uint64_t AddressSpaceInUse() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> statm(std::fopen("/proc/self/statm", "re"), &std::fclose);
  char pages[32];  // the first number of the line
  if (statm == nullptr || std::fgets(pages, sizeof(pages), statm.get()) == nullptr) return 0;
  return std::uint64_t{std::strtoul(pages, nullptr, 10)} * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::string MemoryThere() {
  if (const auto limit = LimitOf(RLIMIT_AS)) {
    const std::uint64_t used = AddressSpaceInUse();
    const std::string limited = "RLIMIT_AS is " + std::to_string(*limit) + " bytes";
    return used == 0 ? limited : limited + ", of which " + std::to_string(used) + " are in use";
  }
  if (const auto limit = LimitOf(RLIMIT_DATA)) return "RLIMIT_DATA is " + std::to_string(*limit) + " bytes";
  struct sysinfo host {};
  ::sysinfo(&host);
  return "the host has " + std::to_string(std::uint64_t{host.freeram} * host.mem_unit) + " bytes free";
}

// Of a thread that is made without options.
std::size_t StackBytes() {
  pthread_attr_t attributes;
  std::size_t bytes = 0;
  if (::pthread_attr_init(&attributes) != 0) return 0;
  ::pthread_attr_getstacksize(&attributes, &bytes);
  ::pthread_attr_destroy(&attributes);
  return bytes;
}

void ExpectDescriptors(std::size_t count, const std::string& what) {
  std::vector<UniqueFd> tried;
  while (tried.size() < count) {
    UniqueFd one(::eventfd(0, EFD_CLOEXEC));
    const int error = errno;
    if (!one && error == EMFILE) throw OutOfDescriptors(what, count - tried.size());
    if (!one) throw SystemError(error, ErrorCode::kResourceExhausted, what);
    tried.push_back(std::move(one));
  }
}

// The C library keeps the stacks of threads that have ended for those that come next.
void ExpectThreads(std::size_t count, const std::string& what) {
  std::latch all_are_there(1);
  std::vector<std::jthread> tried;
  const struct LetGo {  // before they are waited for, whatever was thrown
    std::latch& latch;
    ~LetGo() { latch.count_down(); }
  } let_go{all_are_there};
  try {
    while (tried.size() < count) tried.emplace_back([&all_are_there] { all_are_there.wait(); });
  } catch (const std::system_error&) {
    throw OutOfThreads(what);
  }
}

}  // namespace

Error OutOfMemory(const std::string& what, std::uint64_t bytes) {
  const std::string asked = bytes == 0 ? "some" : std::to_string(bytes) + " bytes of";
  return {ErrorCode::kResourceExhausted,
          what + ": out of memory: asked for " + asked + " memory, and " + MemoryThere()};
}

Error OutOfDescriptors(const std::string& what, std::size_t count) {
  const std::uint64_t limit = LimitOf(RLIMIT_NOFILE).value_or(0);
  return {ErrorCode::kResourceExhausted, what + ": no file descriptor is left: RLIMIT_NOFILE (ulimit -n) is " +
                                             std::to_string(limit) + ", expected at least " +
                                             std::to_string(limit + count)};
}

Error OutOfThreads(const std::string& what) {
  const auto limit = LimitOf(RLIMIT_NPROC);
  return {ErrorCode::kResourceExhausted, what + ": no thread or process can be started: asked for " +
                                             std::to_string(StackBytes()) +
                                             " bytes of stack, RLIMIT_NPROC (ulimit -u) is " +
                                             (limit ? std::to_string(*limit) : "unlimited") + ", and " + MemoryThere()};
}

Error SystemError(int error, ErrorCode otherwise, const std::string& what, std::uint64_t bytes) {
  switch (error) {
    case ENOMEM: return OutOfMemory(what, bytes);
    case EMFILE: return OutOfDescriptors(what);
    case EAGAIN: return OutOfThreads(what);  // of fork and pthread_create
    case ENFILE:
    case ENOBUFS:
    case ENOSPC: otherwise = ErrorCode::kResourceExhausted; break;
    default: break;
  }
  const std::string asked = bytes == 0 ? "" : " (" + std::to_string(bytes) + " bytes)";
  return {otherwise, what + asked + ": " + std::generic_category().message(error)};
}

void ExpectRoomFor(const Needed& needed, const std::string& what) {
  ExpectDescriptors(needed.descriptors, what);
  ExpectThreads(needed.threads, what);
  if (needed.bytes == 0) return;
  // From the kernel: what this thread's heap has left is not for the threads of others.
  constexpr int kFresh = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const tried = ::mmap(nullptr, needed.bytes, PROT_READ | PROT_WRITE, kFresh, -1, 0);
  if (tried == MAP_FAILED) throw OutOfMemory(what, needed.bytes);
  ::munmap(tried, needed.bytes);
}

}  // namespace layercast
