#include "src/transport/ucx/wire/ucx_link.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/base/log.h"
#include "src/transport/ucx/wire/printed.h"
#include "src/transport/ucx/wire/settings.h"
#include "src/transport/ucx/wire/ucx_status.h"

namespace layercast::ucx_channel {
namespace {

constexpr int kStepsAtOnce = 32;
constexpr int kStepsToClose = 1000;
constexpr std::chrono::milliseconds kToGiveUp{100};
constexpr std::size_t kAfterAddress = 4096;
constexpr unsigned kActiveMessages = 1U << 16;  // a message's identifier has 16 bits

// The lanes of an endpoint. ucp_ep_query tells them only in later versions of UCX; what is printed has stayed the same:
// "#                 lane[0]:  0:tcp/lo.0 md[0]   -> ..."
std::string LanesOf(ucp_ep_h endpoint) {
  const std::string all = Printed([endpoint](std::FILE* stream) { ucp_ep_print_info(endpoint, stream); });
  std::string lanes;
  for (std::size_t at = all.find("lane["); at != std::string_view::npos; at = all.find("lane[", at + 1)) {
    std::string_view line = std::string_view(all).substr(at, all.find('\n', at) - at);
    line.remove_prefix(std::min(line.size(), line.find("]:") + 2));
    line.remove_prefix(std::min(line.size(), line.find(':') + 1));  // the resource's number
    line = line.substr(0, line.find(" md["));
    const std::string lane(line.substr(0, line.rfind('.')));  // without the path's number
    if (lanes.find(lane) == std::string::npos) lanes += (lanes.empty() ? "" : "+") + lane;
  }
  return lanes;
}

}  // namespace

UcxLink::UcxLink(Lanes lanes, const std::string& device, ucp_am_recv_callback_t handler, void* argument)
    : UcxLink(std::make_shared<UcxContext>(MakeSettings(lanes, device), UCP_FEATURE_AM), handler, argument) {}

UcxLink::UcxLink(std::shared_ptr<UcxContext> context, ucp_am_recv_callback_t handler, void* argument)
    : context_(std::move(context)) {
  try {
    MakeWorker(handler, argument);
  } catch (const Error&) {
    if (worker_ != nullptr) ucp_worker_destroy(worker_);
    throw;
  }
}

void UcxLink::MakeWorker(ucp_am_recv_callback_t handler, void* argument) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  Expect(ucp_worker_create(context_->get(), &params, &worker_), "make a worker");
  Expect(ucp_worker_get_efd(worker_, &fd_), "wake a thread");
  if (!context_->takes_messages()) return;
  // UCX 1.13 looks into its table of handlers at whatever identifier a peer sends, before it checks whether the table
  // is that long, and calls whatever lies in a gap. So every identifier gets a handler, at 1.5 MiB and 2 ms a
  // connection. The largest comes first, so that the table grows only once.
  for (unsigned number = kActiveMessages; number-- > 0;) {
    if (number == kActiveMessage) {
      TakeMessages(number, handler, argument);
    } else {
      TakeMessages(number, &Drop, nullptr);
    }
  }
}

void UcxLink::TakeMessages(unsigned number, ucp_am_recv_callback_t handler, void* argument) {
  ucp_am_handler_param_t taking{};
  taking.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                      UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  taking.id = number;
  taking.cb = handler;
  taking.arg = argument;
  taking.flags = UCP_AM_FLAG_WHOLE_MSG;
  Expect(ucp_worker_set_am_recv_handler(worker_, &taking), "take active messages");
}

UcxLink::~UcxLink() {
  Disconnect();
  ucp_worker_destroy(worker_);
}

void UcxLink::Disconnect() noexcept {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t closing = ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &params);
  // UCX gives up what was under way only while it is allowed to work, and over shared memory not while the other end's
  // queue is full. If the worker were destroyed before that, UCX 1.13 would abort the process: "Assertion
  // `ucs_hlist_is_empty(proto_reqs)'".
  for (int i = 0; i < kStepsToClose && ucp_worker_progress(worker_) != 0; ++i) {
  }
  for (const Deadline deadline = Deadline::After(kToGiveUp); under_way_ != 0 && !deadline.Passed(); ::sched_yield()) {
    ucp_worker_progress(worker_);
  }
  if (under_way_ != 0) log::error("ucx: {} operations do not end with their connection", under_way_);
  if (UCS_PTR_IS_PTR(closing)) ucp_request_free(closing);
}

std::vector<std::byte> UcxLink::Address() const {
  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  Expect(ucp_worker_get_address(worker_, &address, &size), "give its address");
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> copy(bytes, bytes + size);
  ucp_worker_release_address(worker_, address);
  return copy;
}

void UcxLink::Connect(std::span<const std::byte> address) {
  // UCX reads an address up to its end marks and is not told how long it is. So bytes that it takes for end marks
  // follow.
  std::vector<std::byte> padded(address.begin(), address.end());
  padded.resize(address.size() + kAfterAddress, std::byte{0xFF});
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(padded.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&OnError, this};
  Expect(ucp_ep_create(worker_, &params, &endpoint_), "reach the other end");
  lane_ = LanesOf(endpoint_);
}

bool UcxLink::Progress() {
  bool moved = false;
  for (int i = 0; i < kStepsAtOnce && ucp_worker_progress(worker_) != 0; ++i) moved = true;
  return moved;
}

bool UcxLink::Arm() { return ucp_worker_arm(worker_) == UCS_OK; }

ucs_status_t UcxLink::Drop(void* /*argument*/, const void* /*header*/, std::size_t /*header_length*/, void* /*data*/,
                           std::size_t /*length*/, const ucp_am_recv_param_t* /*param*/) {
  return UCS_OK;
}

void UcxLink::OnError(void* link, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  static_cast<UcxLink*>(link)->failure_ = std::string("UCX lost the other end: ") + ucs_status_string(status);
}

void Spin::GiveWay() { ::sched_yield(); }

}  // namespace layercast::ucx_channel
