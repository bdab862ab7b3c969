// Bare UCX, the limit of the ucx channel: with the same settings, pieces of 1 MiB are sent from where they lie to where
// they belong, the same number at once, and nothing else is done: no requests, no accounting, no liveness. Used by
// wire_bench.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "layercast/memory.h"
#include "src/transport/ucx/wire/ucx_link.h"

namespace layercast::bench {

class BareUcx {
 public:
  BareUcx(const Buffer& source, ucx_channel::Lanes lanes)
      : source_(source), spin_(lanes), sender_(lanes, "lo"), receiver_(lanes, "lo", &OnMessage, this) {
    sender_.Connect(receiver_.Address());
    receiver_.Connect(sender_.Address());
    thread_ = std::jthread([this](const std::stop_token& stop) { Serve(stop); });
  }
  ~BareUcx() {
    thread_.request_stop();
    ucp_worker_signal(sender_.worker());
  }

  void Fetch(std::byte* destination) {
    destination_ = destination;
    landed_ = 0;
    wanted_ = source_.size() / kPiece;
    ucp_worker_signal(sender_.worker());
    while (landed_ < source_.size() / kPiece) Work(receiver_);
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 20;
  static constexpr std::size_t kUnderWay = 16;

  void Work(ucx_channel::UcxLink& link) {
    if (link.Progress() || spin_.Until([&] { return link.Progress(); }) || !link.Arm()) return;
    pollfd item{link.fd(), POLLIN, 0};
    ::poll(&item, 1, 1000);
  }

  void Serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      for (std::size_t left = wanted_.exchange(0), sent = 0; sent < left || under_way_ != 0;) {
        while (sent < left && under_way_ < kUnderWay) Send(sent++ * kPiece);
        Work(sender_);
      }
      Work(sender_);
    }
  }

  void Send(std::size_t offset) {
    std::size_t& header = headers_[offset / kPiece % headers_.size()];
    header = offset;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_RNDV;
    params.user_data = this;
    params.cb.send = [](void* request, ucs_status_t /*status*/, void* self) {
      --static_cast<BareUcx*>(self)->under_way_;
      ucp_request_free(request);
    };
    const ucs_status_ptr_t request = ucp_am_send_nbx(sender_.endpoint(), ucx_channel::kActiveMessage, &header,
                                                     sizeof(header), source_.data() + offset, kPiece, &params);
    if (UCS_PTR_IS_ERR(request)) throw std::runtime_error("UCX does not send");
    if (request != nullptr) ++under_way_;
  }

  static ucs_status_t OnMessage(void* argument, const void* header, std::size_t /*header_length*/, void* data,
                                std::size_t length, const ucp_am_recv_param_t* /*param*/) {
    auto& self = *static_cast<BareUcx*>(argument);
    std::size_t offset = 0;
    std::memcpy(&offset, header, sizeof(offset));
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.user_data = argument;
    params.cb.recv_am = [](void* request, ucs_status_t /*status*/, std::size_t /*received*/, void* receiver) {
      ++static_cast<BareUcx*>(receiver)->landed_;
      ucp_request_free(request);
    };
    const ucs_status_ptr_t request =
        ucp_am_recv_data_nbx(self.receiver_.worker(), data, self.destination_ + offset, length, &params);
    if (request == nullptr) ++self.landed_;
    return UCS_OK;
  }

  const Buffer& source_;
  const ucx_channel::Spin spin_;
  std::array<std::size_t, 2 * kUnderWay> headers_{};
  std::byte* destination_ = nullptr;  // the receiving thread's, as is `landed_`
  std::size_t landed_ = 0;
  std::size_t under_way_ = 0;  // the sending thread's
  std::atomic<std::size_t> wanted_{0};
  ucx_channel::UcxLink sender_;
  ucx_channel::UcxLink receiver_;
  std::jthread thread_;
};

}  // namespace layercast::bench
