// One receiver of a channel, as its publisher sees it over its control socket: the greeting, its requests and pings,
// and the end of what it is refused. A channel adds what it answers. Base of the receivers of ucx, cuda_ipc and nccl,
// which Receivers serves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "src/base/deadline.h"
#include "src/net/control_socket.h"
#include "src/net/token.h"
#include "src/transport/channel/channel_messages.h"

namespace layercast {

// Resource; one thread only (the service thread).
class ChannelPeer {
 public:
  // `number`: the receiver's number among all that ever came to this end, for the log.
  ChannelPeer(UniqueFd connected, std::uint64_t number) : control_(std::move(connected)), number_(number) {}
  virtual ~ChannelPeer() = default;
  ChannelPeer(const ChannelPeer&) = delete;
  ChannelPeer& operator=(const ChannelPeer&) = delete;

  // Takes the messages that are there, but not so many that other receivers wait long. Throws when the connection is of
  // no more use.
  void TakeMessages();
  bool more() const { return more_; }  // messages may be left, even if a poll of the socket shows nothing
  const ControlSocket& control() const { return control_; }
  std::uint64_t number() const { return number_; }
  // Whether it is to lose its connection, be it because it has not greeted in time, or because its session has ended.
  virtual bool TooLate() {
    return cut_ || (leave_ != nullptr && leave_->taken_back()) || (!greeted_ && greet_by_.Passed());
  }
  // Tells the receiver why nothing more will come, and drops what it has asked for. What it says from now on is
  // unheard.
  void Refuse(const Refusal& refusal);
  bool refused() const { return refused_; }

 protected:
  // Whether the key of its greeting admits it.
  bool Enters(Invitations& invitations, const Token& key) {
    leave_ = invitations.Admits(key);
    return leave_ != nullptr;
  }
  // A message that comes before the greeting is over. True: now it is.
  virtual bool OnHello(std::span<const std::byte> message) = 0;
  // What is thrown is the receiver's refusal, but kCorrupt ends its connection.
  virtual void OnRequest(const Request& request) = 0;
  virtual void OnPing() { control_.Send(Encode(Bare{Kind::kPong})); }
  // A message that is none of these. The default throws kCorrupt.
  virtual void OnMessage(Kind kind, std::span<const std::byte> message);
  // Drops the requests that were not answered.
  virtual void DropRequests() = 0;

  bool greeted() const { return greeted_; }
  // Ends its connection, soon. What it says from now on is unheard.
  void EndSoon() { cut_ = true; }

  ControlSocket control_;

 private:
  static constexpr std::chrono::seconds kTimeToGreet{5};

  void Take(std::span<const std::byte> message);
  void TakeRequest(const Request& request);

  const std::uint64_t number_;
  const Deadline greet_by_ = Deadline::After(kTimeToGreet);
  std::shared_ptr<const Invitations::Leave> leave_;  // once it was admitted; the other owner is the offering end
  bool greeted_ = false;
  bool refused_ = false;
  bool cut_ = false;
  bool more_ = false;
};

}  // namespace layercast
