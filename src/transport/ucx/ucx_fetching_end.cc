#include "src/transport/ucx/ucx_fetching_end.h"

#include <cstring>
#include <utility>

#include "layercast/error.h"
#include "src/net/message_order.h"

namespace layercast::ucx_channel {

UcxFetchingEnd::UcxFetchingEnd(const std::string& address, Greeted greeted, Deadline deadline)
    : ControlledFetching(PeerAt(address)), lanes_(greeted.welcome.lanes), token_(greeted.welcome.token) {
  control_ = std::move(greeted.control);
  Open([&] { Answer(greeted.welcome, deadline); });
}

void UcxFetchingEnd::Answer(const Welcome& welcome, Deadline deadline) {
  link_.emplace(lanes_, control_->Device(), &OnMessage, this);
  link_->Connect(welcome.address);
  control_->Send(Encode(WorkerAddress{link_->Address()}));
  AwaitStanding(reached_, deadline, [this] { return "nothing came by UCX's lanes (" + link_->lane() + ") in time"; });
}

void UcxFetchingEnd::Prepare(Chunk& chunk, const ChunkRequest& /*request*/, const std::vector<std::byte>& /*message*/) {
  chunk.owner = this;
  chunk.pieces = ArrivedPieces(chunk.destination.size());
}

void UcxFetchingEnd::End() noexcept {
  if (link_) link_->Disconnect();  // runs callbacks, which use link_ and requests_
  link_.reset();
  control_.reset();
  requests_.Clear();
}

bool UcxFetchingEnd::Progress() {
  const bool moved = link_->Progress();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  if (moved && lost_.empty() && link_->failure().empty()) return true;
  ExpectThere();
  return false;
}

void UcxFetchingEnd::ExpectThere() {
  TakeMessages();
  if (lost_.empty()) lost_ = link_->failure();
  if (!lost_.empty()) ThrowLost(*control_, lost_);
}

ucs_status_t UcxFetchingEnd::OnMessage(void* end, const void* header, std::size_t header_length, void* data,
                                       std::size_t length, const ucp_am_recv_param_t* param) {
  auto& self = *static_cast<UcxFetchingEnd*>(end);
  try {
    self.TakeActive({static_cast<const std::byte*>(header), header_length}, data, length,
                    (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
  } catch (...) {
    self.failure_ = std::current_exception();
  }
  return UCS_OK;  // UCX drops what was not taken
}

void UcxFetchingEnd::TakeActive(std::span<const std::byte> bytes, void* data, std::size_t length, bool rendezvous) {
  if (const Kind kind = DecodeKind(bytes); kind != Kind::kPiece && kind != Kind::kPong) {
    throw Error(ErrorCode::kCorrupt, "an unknown kind of active message");
  }
  const auto header = Decode<ActiveHeader>(bytes);
  if (header.token != token_) return;  // a stranger's: UCX takes active messages from whoever reaches it
  Heard();
  if (header.kind == Kind::kPong) return;
  Chunk* const chunk = requests_.Find(header.ticket);
  if (chunk == nullptr || !chunk->pieces.Claim(header.offset, length)) {
    throw Error(ErrorCode::kCorrupt, "a piece that was not asked for: ticket " + std::to_string(header.ticket) +
                                         ", offset " + std::to_string(header.offset) + ", " + std::to_string(length) +
                                         " bytes");
  }
  Land(*chunk, header.offset, data, length, rendezvous);
}

void UcxFetchingEnd::Land(Chunk& chunk, std::uint64_t offset, void* data, std::size_t length, bool rendezvous) {
  std::byte* destination = chunk.destination.data() + offset;
  if (!rendezvous) {
    if (length != 0) std::memcpy(destination, data, length);
    return CompleteIfWhole(chunk);
  }
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.recv_am = &OnLanded;
  params.user_data = &chunk;
  ++chunk.landing;
  link_->Began();
  const ucs_status_ptr_t request = ucp_am_recv_data_nbx(link_->worker(), data, destination, length, &params);
  if (UCS_PTR_IS_PTR(request)) return;
  link_->Ended();
  --chunk.landing;
  if (UCS_PTR_IS_ERR(request)) throw Error(ErrorCode::kUnavailable, ucs_status_string(UCS_PTR_STATUS(request)));
  CompleteIfWhole(chunk);
}

void UcxFetchingEnd::OnLanded(void* request, ucs_status_t status, std::size_t /*length*/, void* chunk) {
  ucp_request_free(request);
  auto& landed = *static_cast<Chunk*>(chunk);
  UcxFetchingEnd& self = *landed.owner;
  --landed.landing;
  self.link_->Ended();
  if (status != UCS_OK) {
    self.lost_ = std::string("UCX lost a piece: ") + ucs_status_string(status);
    return;
  }
  try {
    self.Heard();
    self.CompleteIfWhole(landed);
  } catch (...) {
    self.failure_ = std::current_exception();
  }
}

void UcxFetchingEnd::Heard() {
  reached_ = true;
  liveness_.Heard();
}

void UcxFetchingEnd::CompleteIfWhole(Chunk& chunk) {
  if (!chunk.pieces.whole() || chunk.landing != 0) return;
  MessageHasCome();
  requests_.Complete(chunk);
}

void UcxFetchingEnd::Wait(Deadline deadline) {
  if (Spin(lanes_).Until([&] { return Progress(); })) return;
  ControlledFetching::Wait(deadline);
}

void UcxFetchingEnd::Sleep(Deadline deadline) {
  if (link_->Arm()) SleepFor(deadline.Remaining(), link_->fd());
}

}  // namespace layercast::ucx_channel
