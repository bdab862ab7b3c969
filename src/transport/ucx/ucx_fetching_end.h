// The receiver's end of the ucx channel where bytes come as active messages: requests go over the control socket, and
// UCX brings the pieces to the caller's destination.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/transport/channel/controlled_fetching.h"
#include "src/transport/ucx/arrived_pieces.h"
#include "src/transport/ucx/wire/greeting.h"
#include "src/transport/ucx/wire/ucx_link.h"
#include "src/transport/ucx/wire/ucx_messages.h"

namespace layercast::ucx_channel {

class UcxFetchingEnd;

// A chunk that was asked for.
struct Chunk : RequestedChunk {
  UcxFetchingEnd* owner = nullptr;
  ArrivedPieces pieces{0};
  std::size_t landing = 0;  // pieces that UCX is still bringing
};

// One thread only.
class UcxFetchingEnd final : public ControlledFetching<Chunk> {
 public:
  // Throws kUnavailable or kDeadlineExceeded, naming `address` without its key.
  UcxFetchingEnd(const std::string& address, Greeted greeted, Deadline deadline);
  ~UcxFetchingEnd() override { Close(); }

  std::string lane() const override { return link_ ? link_->lane() : std::string(); }

 private:
  void Answer(const Welcome& welcome, Deadline deadline);
  void ExpectThere() override;
  void Prepare(Chunk& chunk, const ChunkRequest& request, const std::vector<std::byte>& message) override;
  bool Progress() override;
  void Wait(Deadline deadline) override;
  void Sleep(Deadline deadline) override;
  void End() noexcept override;
  void TakeMessage(std::span<const std::byte> message) override { ThrowRefused(message); }

  // UCX's callbacks. Nothing may be thrown through UCX, so what goes wrong in them is kept for Progress to throw.
  static ucs_status_t OnMessage(void* end, const void* header, std::size_t header_length, void* data,
                                std::size_t length, const ucp_am_recv_param_t* param);
  static void OnLanded(void* request, ucs_status_t status, std::size_t length, void* chunk);
  void TakeActive(std::span<const std::byte> header, void* data, std::size_t length, bool rendezvous);
  void Land(Chunk& chunk, std::uint64_t offset, void* data, std::size_t length, bool rendezvous);
  void Heard();
  void CompleteIfWhole(Chunk& chunk);

  std::optional<UcxLink> link_;
  const Lanes lanes_;
  const Token token_;
  bool reached_ = false;        // a message has come by UCX
  std::exception_ptr failure_;  // what a callback would have thrown
  std::string lost_;            // what ended the connection, according to UCX
};

}  // namespace layercast::ucx_channel
