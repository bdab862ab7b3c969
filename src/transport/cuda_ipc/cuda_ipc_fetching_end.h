// The receiver's end of the cuda_ipc channel: maps the publisher's arena, and copies what it is granted from there to
// where the caller wants it, on a stream of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/transport/channel.h"
#include "src/transport/connection_guard.h"
#include "src/transport/control_socket.h"
#include "src/transport/cuda_ipc/cuda_ipc_transport.h"
#include "src/transport/cuda_ipc/messages.h"
#include "src/transport/liveness.h"
#include "src/transport/mapping_cache.h"
#include "src/transport/requests_under_way.h"

namespace layercast::cuda_ipc_channel {

// By the publisher's address, and its number there.
using Mappings = MappingCache<std::pair<std::string, std::uint32_t>, MappedSegment>;
using Mapping = std::shared_ptr<const MappedSegment>;  // owners: the cache, and connections, which copy from it

// One thread only.
class CudaIpcFetchingEnd final : public FetchingEnd {
 public:
  // Throws kUnavailable or kDeadlineExceeded, naming `address`. `mappings` is shared with the transport.
  CudaIpcFetchingEnd(CudaIpcParts parts, std::shared_ptr<Mappings> mappings, const std::string& address,
                     Deadline deadline);
  ~CudaIpcFetchingEnd() override { Close(); }

  bool attaches() const override { return false; }
  bool writes_to(const Device& device) const override { return device == parts_.device->device_memory().device(); }
  std::string lane() const override { return lane_; }
  void Submit(const ChunkRequest& request) override;
  std::optional<ChunkCompletion> Poll(Deadline deadline) override;
  void Close() noexcept override;

 private:
  struct Chunk : RequestedChunk {
    std::vector<Region> regions;
    bool reached = false;  // by the device, which then copies there by itself
    bool granted = false;
    bool waits = false;               // until the publisher's event is reached
    std::vector<RegionView> sources;  // in `mappings`, of each region
    std::vector<Mapping> mappings;    // until it has landed
    Buffer pinned;                    // where it goes first, unless reached
    std::uint64_t copied = 0;         // the mark in the stream
  };

  // Runs `step`; when it fails, lets go of what is mapped of this publisher.
  template <typename Step>
  auto Run(const Step& step);
  // False: the publisher's event cannot be opened.
  bool Greet(const std::string& name, bool takes_events, Deadline deadline);

  // Takes what is there; true when something was. Throws what the publisher refused with, or what is wrong with it.
  bool Progress();
  bool TakeMessages();
  void TakeMessage(std::span<const std::byte> message);
  void TakeSegment(const Announced& announced);
  void TakeGranted(const Granted& granted);
  RegionView Locate(const Place& place, const Region& region, std::vector<Mapping>& mappings) const;

  // The stages of a chunk: each moves those that can go on to the next.
  bool CopyGranted();
  void Copy(Chunk& chunk);
  bool Land();

  void Wait(Deadline deadline);
  void Sleep(std::chrono::microseconds time);

  const CudaIpcParts parts_;
  const std::shared_ptr<Mappings> mappings_;
  const std::string address_;
  ConnectionGuard guard_;
  std::string lane_;
  std::optional<ControlSocket> control_;
  std::map<std::uint32_t, Mapping> segments_;
  std::unique_ptr<IpcEvent> event_;
  RequestsUnderWay<Chunk> requests_;
  std::deque<Chunk*> granted_;
  std::deque<Chunk*> copying_;
  std::size_t pinned_bytes_ = 0;  // of the chunks in copying_
  Deadline::Clock::time_point moved_;
  Liveness liveness_;
  std::unique_ptr<CopyStream> stream_;
};

}  // namespace layercast::cuda_ipc_channel
