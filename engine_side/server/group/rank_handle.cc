#include "engine_side/server/group/rank_handle.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <utility>

#include "layercast/error.h"
#include "src/base/exhausted.h"
#include "src/base/threads/bounded_queue.h"
#include "src/base/threads/thread_name.h"

namespace layercast {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNow{0};
constexpr milliseconds kPingInterval{500};
constexpr milliseconds kExitTime{500};       // from the end of a process's sockets to its own end
constexpr milliseconds kStartTime{120'000};  // until its first message; its libraries may be on a slow disk
constexpr milliseconds kSilence{5000};       // of a rank's reading thread, which only reads: it hangs or was stopped

// Runs in the child between fork and exec: only async-signal-safe calls are allowed.
[[noreturn]] void Become(char* const* arguments, char* const* environment, const std::vector<int>& descriptors,
                         pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a rank never outlives its engine
  if (::getppid() != parent) ::_exit(127);
  for (const int fd : descriptors) ::fcntl(fd, F_SETFD, 0);
  // Sent by a terminal, or at a job's end, to all of the engine's processes; the parent then ends its ranks.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);  // the parent may have blocked signals to wait for them
  ::execve(arguments[0], arguments, environment);
  ::_exit(127);
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(bool keep_failpoints) {
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (keep_failpoints || std::strncmp(*variable, "LAYERCAST_FAILPOINTS=", 21) != 0)
      environment.emplace_back(*variable);
  }
  return environment;
}

}  // namespace

RankHandle::RankHandle(const RankLaunch& launch)
    : rank_(launch.rank),
      on_lost_(launch.on_lost),
      silence_(Deadline::Clock::now(), kPingInterval),
      patience_(kStartTime) {
  int sockets[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    throw SystemError(errno, ErrorCode::kUnavailable, "the link to rank " + std::to_string(rank_));
  }
  UniqueFd mine(sockets[0]);
  const UniqueFd theirs(sockets[1]);
  std::vector<std::string> arguments = {launch.program};
  arguments.insert(arguments.end(), launch.arguments.begin(), launch.arguments.end());
  arguments.insert(arguments.end(), {"--link-fd", std::to_string(theirs.get())});
  std::vector<int> descriptors = {theirs.get()};
  for (const auto& [flag, fd] : launch.descriptors) {
    arguments.insert(arguments.end(), {flag, std::to_string(fd)});
    descriptors.push_back(fd);
  }
  std::vector<std::string> environment = Environment(launch.keep_failpoints);
  const std::vector<char*> argument_pointers = Pointers(arguments);
  const std::vector<char*> environment_pointers = Pointers(environment);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) Become(argument_pointers.data(), environment_pointers.data(), descriptors, parent);
  if (pid_ < 0) throw SystemError(errno, ErrorCode::kUnavailable, "rank " + std::to_string(rank_) + ": cannot fork");
  try {
    stream_ = std::make_unique<JsonStream>(std::move(mine));
    reader_ = std::thread([this] { Read(); });
    watcher_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
  } catch (...) {
    EndProcess();
    throw;
  }
}

RankHandle::~RankHandle() {
  ending_ = true;
  watcher_.request_stop();
  changed_.notify_all();
  watcher_.join();
  EndProcess();
}

// And with it the thread that reads from it.
void RankHandle::EndProcess() {
  SendKill();
  Reap();
  if (!reader_.joinable()) return;
  stream_->Shutdown();
  reader_.join();
}

void RankHandle::Call(const std::string& method, const Json& params, TakeAnswer take) {
  std::uint64_t id = 0;
  {
    std::unique_lock lock(mutex_);
    if (!alive_) {
      const Error lost = *lost_;
      lock.unlock();
      return take({{}, lost});
    }
    id = ++last_id_;
    if (method == "stage") progress_ = nullptr;
    waiting_.emplace(id, std::move(take));
  }
  // If it takes no more calls, the reading thread ends, once it has read what the rank last said: perhaps why it
  // failed.
  if (!stream_->Send({{"id", id}, {"method", method}, {"params", params}})) stream_->Shutdown();
}

void RankHandle::Read() {
  NameThisThread("lc-rank-read");
  while (std::optional<Json> message = stream_->Receive()) {
    NoteHeard(*message);
    if (message->contains("failed")) Lose(ErrorFromJson((*message)["failed"]));
    const TakeAnswer take = TakerOf(*message);
    if (!take) continue;  // a pong, or progress
    if (message->contains("error")) {
      take({{}, ErrorFromJson((*message)["error"])});
    } else {
      take({message->value("result", Json::object()), {}});
    }
  }
  GiveUp(Gone(HowItEnded()));
}

// Notes that the rank is alive, and its progress.
void RankHandle::NoteHeard(const Json& message) {
  const std::lock_guard lock(mutex_);
  silence_.Heard(Deadline::Clock::now());
  patience_ = kSilence;
  if (message.contains("progress")) progress_ = message["progress"];
}

// Whoever waits for the message, or an empty function if it is no answer.
RankHandle::TakeAnswer RankHandle::TakerOf(const Json& message) {
  const std::lock_guard lock(mutex_);
  auto waiting = waiting_.extract(message.value("id", std::uint64_t{0}));
  return waiting ? std::move(waiting.mapped()) : TakeAnswer();
}

// Describes how the process ended. Its socket has closed, so it has ended or is about to.
std::string RankHandle::HowItEnded() const {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  pollfd ended = {process.get(), POLLIN, 0};
  siginfo_t how = {};
  if (process && ::poll(&ended, 1, kExitTime.count()) == 1) {
    ::waitid(P_PID, static_cast<id_t>(pid_), &how, WEXITED | WNOHANG | WNOWAIT);  // WNOWAIT: it stays to be reaped
  }
  if (how.si_pid == 0) return "closed its link";
  if (how.si_code == CLD_EXITED) return "exited with status " + std::to_string(how.si_status);
  const char* const likely = how.si_status == SIGBUS ? ": was a file that it was reading cut short?" : "";
  return "died of signal " + std::to_string(how.si_status) + " (" + ::sigdescr_np(how.si_status) + ")" + likely;
}

// Watches for silence, which alone tells that a process is stopped or hangs: its socket stays open.
void RankHandle::Watch(const std::stop_token& stop) {
  NameThisThread("lc-rank-watch");
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested() && alive_) {
    changed_.wait_for(lock, stop, kPingInterval, [] { return false; });
    if (stop.stop_requested()) return;
    const milliseconds allowed = patience_;
    const bool silent = silence_.Look(Deadline::Clock::now()) > allowed;
    lock.unlock();
    if (silent) {
      GiveUp(Gone("was silent for " + std::to_string(allowed.count()) + " ms"));
    } else {
      stream_->SendIfFree({{"ping", 1}});
    }
    lock.lock();
  }
}

// The error with which the rank's calls fail. It does not say which rank: TryAll adds that.
Error RankHandle::Gone(const std::string& how) const {
  return {ErrorCode::kUnavailable, "process " + std::to_string(pid_) + " " + how};
}

void RankHandle::Lose(const Error& why) {
  std::map<std::uint64_t, TakeAnswer> waiting;
  bool was_alive = false;
  {
    const std::lock_guard lock(mutex_);
    if (!lost_) lost_ = why;
    was_alive = alive_.exchange(false);
    waiting.swap(waiting_);
  }
  if (was_alive && !ending_ && on_lost_) on_lost_(why);
  for (const auto& [id, take] : waiting) take({{}, why});
  stream_->Shutdown();  // a Send that still waits returns
}

Json RankHandle::progress() {
  const std::lock_guard lock(mutex_);
  return progress_;
}

void RankHandle::Kill() { GiveUp(Gone("was ended")); }

// Kills the process as well: other ranks may be waiting for it in a collective, which only its death ends at once. And
// one that was stopped must not go on some day, when another process has its memory.
void RankHandle::GiveUp(const Error& why) {
  Lose(why);
  SendKill();
}

// Kills the process unless it was reaped: its number may then be another process's.
void RankHandle::SendKill() {
  const std::lock_guard lock(reaping_);
  if (!reaped_) ::kill(pid_, SIGKILL);
}

void RankHandle::Reap() {
  const std::lock_guard lock(reaping_);
  if (std::exchange(reaped_, true)) return;
  int status = 0;
  ::waitpid(pid_, &status, 0);
}

void RankHandle::End(Deadline grace) {
  ending_ = true;
  if (alive_) {
    const auto ended = std::make_shared<BoundedQueue<RankAnswer>>(1);  // the call is the other owner
    Call("end", Json::object(), [ended](RankAnswer answer) { ended->Push(std::move(answer), Deadline::After(kNow)); });
    static_cast<void>(ended->Pop(grace));
  }
  Kill();
  Reap();
}

std::vector<RankAnswer> TryAll(std::vector<std::unique_ptr<RankHandle>>& ranks, const std::string& method,
                               const Json& params, Deadline deadline, const HearAnswer& heard) {
  struct Numbered {
    std::size_t rank;
    RankAnswer answer;
  };
  // Has room for all answers. The calls are the other owners, even those for which nobody waits any more.
  const auto came = std::make_shared<BoundedQueue<Numbered>>(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i]->Call(method, params,
                   [came, i](RankAnswer answer) { came->Push({i, std::move(answer)}, Deadline::After(kNow)); });
  }
  std::vector<std::optional<RankAnswer>> answers(ranks.size());
  const auto note = [&](std::size_t rank, RankAnswer answer) {
    if (answer.error)
      answer.error.emplace(answer.error->code(), "rank " + std::to_string(rank) + ": " + answer.error->what());
    if (heard) heard(rank, answer);
    answers[rank] = std::move(answer);
  };
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::optional<Numbered> next = came->Pop(deadline);
    if (!next) break;
    note(next->rank, std::move(next->answer));
  }
  std::vector<RankAnswer> all;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!answers[i]) {
      note(i, {{}, Error(ErrorCode::kDeadlineExceeded, "no answer to '" + method + "' before the deadline")});
    }
    all.push_back(*std::move(answers[i]));
  }
  return all;
}

std::vector<Json> CallAll(std::vector<std::unique_ptr<RankHandle>>& ranks, const std::string& method,
                          const Json& params, Deadline deadline) {
  std::vector<Json> results;
  for (RankAnswer& answer : TryAll(ranks, method, params, deadline)) {
    if (answer.error) throw Error(*answer.error);
    results.push_back(std::move(answer.result));
  }
  return results;
}

}  // namespace layercast
