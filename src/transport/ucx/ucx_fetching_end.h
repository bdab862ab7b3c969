// The receiver's end of the ucx channel where bytes come as active messages: requests go over the control socket, and
// UCX brings the pieces to the caller's destination.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "src/net/control_socket.h"
#include "src/transport/channel/channel.h"
#include "src/transport/channel/connection_guard.h"
#include "src/transport/channel/liveness.h"
#include "src/transport/channel/requests_under_way.h"
#include "src/transport/ucx/arrived_pieces.h"
#include "src/transport/ucx/wire/greeting.h"
#include "src/transport/ucx/wire/ucx_link.h"
#include "src/transport/ucx/wire/ucx_messages.h"

namespace layercast::ucx_channel {

// One thread only.
class UcxFetchingEnd final : public FetchingEnd {
 public:
  // Throws kUnavailable or kDeadlineExceeded, naming `address` without its key.
  UcxFetchingEnd(const std::string& address, Greeted greeted, Deadline deadline);
  ~UcxFetchingEnd() override { Close(); }

  bool attaches() const override { return false; }
  std::string lane() const override { return link_ ? link_->lane() : std::string(); }
  void Submit(const ChunkRequest& request) override;
  std::optional<ChunkCompletion> Poll(Deadline deadline) override;
  void Close() noexcept override;

 private:
  struct Chunk : RequestedChunk {
    UcxFetchingEnd* owner = nullptr;
    ArrivedPieces pieces{0};
    std::size_t landing = 0;  // pieces that UCX is still bringing
  };

  void Answer(const Welcome& welcome, Deadline deadline);
  void AwaitLanes(Deadline deadline);
  // Takes what has come; true if there was something. Throws the publisher's refusal, or what has gone wrong.
  bool Progress();

  // UCX's callbacks. Nothing may be thrown through UCX, so what goes wrong in them is kept for Progress to throw.
  static ucs_status_t OnMessage(void* end, const void* header, std::size_t header_length, void* data,
                                std::size_t length, const ucp_am_recv_param_t* param);
  static void OnLanded(void* request, ucs_status_t status, std::size_t length, void* chunk);
  void TakeMessage(std::span<const std::byte> header, void* data, std::size_t length, bool rendezvous);
  void Land(Chunk& chunk, std::uint64_t offset, void* data, std::size_t length, bool rendezvous);
  void Heard();
  void CompleteIfWhole(Chunk& chunk);

  void ExpectAlive();
  void Wait(Deadline deadline);
  void Sleep(Deadline deadline);

  ConnectionGuard guard_;
  std::optional<ControlSocket> control_;
  std::optional<UcxLink> link_;
  const Lanes lanes_;
  const Token token_;
  bool reached_ = false;  // a message has come by UCX
  RequestsUnderWay<Chunk> requests_;
  std::exception_ptr failure_;  // what a callback would have thrown
  std::string lost_;            // what ended the connection, according to UCX
  Liveness liveness_;           // only what comes by UCX counts
};

}  // namespace layercast::ucx_channel
