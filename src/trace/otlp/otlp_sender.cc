#include "src/trace/otlp/otlp_sender.h"

#include <httplib.h>

#include <algorithm>
#include <array>
#include <stop_token>
#include <thread>
#include <utility>

#include "src/base/log.h"
#include "src/base/threads/bounded_queue.h"
#include "src/base/threads/thread_name.h"

namespace layercast {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostWaiting = 16;
constexpr milliseconds kAnswer{5'000};      // of a collector
constexpr milliseconds kLastAnswer{2'000};  // while the program ends
// After which it is tried once more, with what OTLP says may pass; other answers are final.
constexpr std::array<milliseconds, 4> kPauses = {milliseconds(200), milliseconds(1'000), milliseconds(4'000),
                                                 milliseconds(0)};
constexpr std::array<int, 4> kMayPass = {429, 502, 503, 504};

void WaitUnlessStopped(milliseconds time, const std::stop_token& stop) {
  const Deadline over = Deadline::After(time).OrStop(stop);
  while (!over.Passed()) std::this_thread::sleep_until(over.NextLook());
}

}  // namespace

class OtlpSender::Impl {
 public:
  explicit Impl(OtlpTarget target)
      : target_(std::move(target)), thread_([this](const std::stop_token& stop) { Run(stop); }) {}
  ~Impl() {
    thread_.request_stop();
    waiting_.Close();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void Put(std::string body) {
    if (!waiting_.Push(std::move(body), Deadline::After(milliseconds(0)))) Drop("too many wait");
  }
  std::uint64_t dropped() const { return dropped_; }

 private:
  struct Answer {
    bool taken = false;
    bool may_pass = false;
    std::string why{};
  };

  void Run(const std::stop_token& stop) {
    NameThisThread("lc-otlp");
    bool lost = false;  // since the program ends: what still waits is not tried
    while (std::optional<std::string> body = waiting_.PopUntilClosed()) {
      if (lost) {
        Drop("the program ends");
      } else {
        lost = !Send(*body, stop) && stop.stop_requested();
      }
    }
  }

  // Returns false, and has counted it as dropped, if nobody took it.
  bool Send(const std::string& body, const std::stop_token& stop) {
    Answer answer;
    for (const milliseconds pause : kPauses) {
      answer = Post(body, stop.stop_requested() ? kLastAnswer : kAnswer);
      if (answer.taken) return true;
      if (!answer.may_pass || stop.stop_requested()) break;
      WaitUnlessStopped(pause, stop);
    }
    Drop(answer.why);
    return false;
  }

  Answer Post(const std::string& body, milliseconds patience) const {
    httplib::Client client(target_.base);
    client.set_connection_timeout(patience);
    client.set_read_timeout(patience);
    client.set_write_timeout(patience);
    const httplib::Headers headers(target_.headers.begin(), target_.headers.end());
    const httplib::Result answer = client.Post(target_.path, headers, body, "application/json");
    if (!answer) return {.may_pass = true, .why = httplib::to_string(answer.error())};
    return {.taken = answer->status / 100 == 2,
            .may_pass = std::ranges::find(kMayPass, answer->status) != kMayPass.end(),
            .why = "it answered " + std::to_string(answer->status)};
  }

  void Drop(const std::string& why) {
    log::warn("a trace was not sent to {}: {} ({} so far)", target_.base, why, ++dropped_);
  }

  const OtlpTarget target_;
  BoundedQueue<std::string> waiting_{kMostWaiting};
  std::atomic<std::uint64_t> dropped_{0};
  std::jthread thread_;
};

OtlpSender::OtlpSender(OtlpTarget target) : impl_(std::make_unique<Impl>(std::move(target))) {}
OtlpSender::~OtlpSender() = default;
void OtlpSender::Put(std::string body) { impl_->Put(std::move(body)); }
std::uint64_t OtlpSender::dropped() const { return impl_->dropped(); }

}  // namespace layercast
