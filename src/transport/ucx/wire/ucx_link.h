// UCX's part of one connection: a worker, and an endpoint to the other end's worker. Every connection has its own, so
// that a broken peer costs no other connection, and closing it ends all that UCX may still read or write for it.
#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/transport/ucx/wire/ucx_context.h"
#include "src/transport/ucx/wire/ucx_messages.h"

namespace layercast::ucx_channel {

constexpr unsigned kActiveMessage = 1;  // the only identifier of active messages in use

// Resource; one thread only.
class UcxLink {
 public:
  // Makes a context of its own. `handler` takes the active messages that come; by default they are dropped. Throws
  // kUnavailable if UCX has no such lanes here.
  UcxLink(Lanes lanes, const std::string& device, ucp_am_recv_callback_t handler = &Drop, void* argument = nullptr);
  // Shares a context, whose other owners are links too, and memory that is registered with it. Throws kUnavailable.
  explicit UcxLink(std::shared_ptr<UcxContext> context, ucp_am_recv_callback_t handler = &Drop,
                   void* argument = nullptr);
  // After it UCX touches none of the memory that it was given for this connection. Callbacks of what was under way may
  // run during it.
  ~UcxLink();
  UcxLink(const UcxLink&) = delete;
  UcxLink& operator=(const UcxLink&) = delete;

  ucp_worker_h worker() const { return worker_; }
  ucp_ep_h endpoint() const { return endpoint_; }
  std::vector<std::byte> Address() const;  // of the worker
  // Connects to the worker at `address`, which UCX trusts: its sender must have been authenticated. Throws
  // kUnavailable.
  void Connect(std::span<const std::byte> address);
  // To be called by the owner when UCX has taken an operation on this connection, and when UCX has called back for it.
  void Began() { ++under_way_; }
  void Ended() { --under_way_; }
  // Gives up what is under way, whose callbacks run; the connection is of no more use afterwards. Idempotent.
  void Disconnect() noexcept;
  // The lanes that UCX uses: "tcp/lo", "posix/memory". Empty until connected.
  const std::string& lane() const { return lane_; }

  // Lets UCX work, and its callbacks run; true when something moved.
  bool Progress();
  // Whether a thread may sleep until fd() is readable; false when there is something to do now.
  bool Arm();
  int fd() const { return fd_; }
  // What ended the connection; empty as long as it has not ended.
  const std::string& failure() const { return failure_; }

 private:
  void MakeWorker(ucp_am_recv_callback_t handler, void* argument);
  void TakeMessages(unsigned number, ucp_am_recv_callback_t handler, void* argument);
  static ucs_status_t Drop(void* argument, const void* header, std::size_t header_length, void* data,
                           std::size_t length, const ucp_am_recv_param_t* param);
  static void OnError(void* link, ucp_ep_h endpoint, ucs_status_t status);

  std::shared_ptr<UcxContext> context_;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  int fd_ = -1;
  std::size_t under_way_ = 0;
  std::string lane_;
  std::string failure_;
};

// Waits for UCX by spinning, where that is worth a core: over shared memory, for a moment, since otherwise another
// process has to be woken. Over a network it is not. Value.
class Spin {
 public:
  explicit Spin(Lanes lanes) : shared_(lanes == Lanes::kSharedMemory) {}
  // Runs `progress` until it returns true or a moment has passed, and gives way to other threads in between. False at
  // once where spinning is not worth it.
  template <typename Progress>
  bool Until(const Progress& progress) const {
    if (!shared_) return false;
    const auto end = std::chrono::steady_clock::now() + kMoment;
    do {
      GiveWay();
      if (progress()) return true;
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

 private:
  static constexpr std::chrono::microseconds kMoment{100};
  static void GiveWay();
  bool shared_;
};

}  // namespace layercast::ucx_channel
