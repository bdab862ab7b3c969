#include "src/net/process_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "src/base/threads/thread_name.h"
#include "src/net/local_socket.h"
#include "src/net/poll_for.h"

namespace layercast {
namespace {

constexpr std::size_t kMost = 16;  // publishers: more than a receiver has at one time
constexpr std::chrono::hours kForever{24};

bool HasEnded(int process) {
  pollfd item{process, POLLIN, 0};
  return ::poll(&item, 1, 0) > 0;
}

}  // namespace

ProcessWatch::~ProcessWatch() {
  thread_.request_stop();
  wake_.Ring();
}

void ProcessWatch::Watch(const std::string& address, int socket) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(watched_, address, &Watched::address) != watched_.end()) return;
  // glibc has no function for this system call before 2.36.
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, ProcessOf(socket), 0)));
  if (!process) return;
  watched_.push_back({address, std::make_shared<const UniqueFd>(std::move(process))});
  if (watched_.size() > kMost) watched_.pop_front();
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  wake_.Ring();
}

void ProcessWatch::Run(const std::stop_token& stop) {
  NameThisThread("lc-mappings");
  while (!stop.stop_requested()) {
    std::vector<pollfd> items = {{wake_.fd(), POLLIN, 0}};
    std::vector<std::shared_ptr<const UniqueFd>> held;  // open during the poll, even if no longer watched
    {
      const std::lock_guard lock(mutex_);
      for (const Watched& watched : watched_) {
        held.push_back(watched.process);
        items.push_back({watched.process->get(), POLLIN, 0});
      }
    }
    PollFor(items, kForever);
    wake_.Clear();
    TellEnded();
  }
}

void ProcessWatch::TellEnded() {
  std::vector<std::string> ended;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(watched_, [&](const Watched& watched) {
      if (!HasEnded(watched.process->get())) return false;
      ended.push_back(watched.address);
      return true;
    });
  }
  for (const std::string& address : ended) ended_(address);
}

}  // namespace layercast
