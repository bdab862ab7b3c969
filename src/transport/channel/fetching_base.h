// What the receiving ends of copying channels have in common: the requests under way, a failure that is final, and the
// question to a silent publisher whether it is still there. A channel adds how it greets, and how its bytes land.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/deadline.h"
#include "src/transport/channel/channel.h"
#include "src/transport/channel/channel_messages.h"
#include "src/transport/channel/connection_guard.h"
#include "src/transport/channel/liveness.h"
#include "src/transport/channel/requests_under_way.h"

namespace layercast {

// One thread only. `Chunk`: see RequestsUnderWay. A channel's destructor calls Close.
template <typename Chunk>
class FetchingBase : public FetchingEnd {
 public:
  bool attaches() const final { return false; }
  void Submit(const ChunkRequest& request) final {
    Run([&] {
      ExpectThere();
      const auto [chunk, message] = requests_.Add(request);
      Prepare(chunk, request, message);
      Send(message);
    });
  }
  std::optional<ChunkCompletion> Poll(Deadline deadline) override {
    return Run([&]() -> std::optional<ChunkCompletion> {
      while (!requests_.has_done()) {
        if (Progress()) continue;
        if (requests_.empty() || deadline.Passed()) return std::nullopt;
        Wait(deadline);
      }
      return requests_.TakeDone();
    });
  }
  void Close() noexcept final {
    guard_.Close();
    End();
  }

 protected:
  // `peer` opens every message of an error (ConnectionGuard).
  explicit FetchingBase(std::string peer) : guard_(std::move(peer)) {}

  // Runs `step`, or throws the connection's failure if it has failed before.
  template <typename Step>
  auto Run(const Step& step) {
    return guard_.Run([&] {
      try {
        return step();
      } catch (const Error&) {
        Failed();
        throw;
      }
    });
  }
  // Runs `greet`, at the end of a constructor. If that fails, ends what it has begun, since no destructor will.
  template <typename Greet>
  void Open(const Greet& greet) {
    try {
      Run(greet);
    } catch (...) {
      Close();
      throw;
    }
  }

  const std::string& peer() const { return guard_.peer(); }

  virtual void Send(const std::vector<std::byte>& message) = 0;
  // Throws if the publisher is gone, or has refused.
  virtual void ExpectThere() = 0;
  // To be done with a chunk before it is asked for by `message`.
  virtual void Prepare(Chunk& /*chunk*/, const ChunkRequest& /*request*/, const std::vector<std::byte>& /*message*/) {}
  // Takes what has come, and lands it; true if there was something. Throws the publisher's refusal, or what has gone
  // wrong.
  virtual bool Progress() = 0;
  // Called when nothing has come that should come.
  virtual void Wait(Deadline deadline) {
    if (liveness_.ShouldAsk(requests_.size())) Ask();
    Sleep(deadline.AtMost(Liveness::kAskAfter / 2));
  }
  virtual void Ask() { Send(Encode(Bare{Kind::kPing})); }
  // Waits until there may be something to do, or the deadline passes.
  virtual void Sleep(Deadline deadline) = 0;
  // The connection has just failed.
  virtual void Failed() {}
  // Ends the connection and drops all requests; after it no destination is written. Called once or more.
  virtual void End() noexcept = 0;

  RequestsUnderWay<Chunk> requests_;
  Liveness liveness_;

 private:
  ConnectionGuard guard_;
};

}  // namespace layercast
