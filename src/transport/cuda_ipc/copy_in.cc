#include "src/transport/cuda_ipc/copy_in.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/base/log.h"
#include "src/transport/device/device_tick.h"

namespace layercast::cuda_ipc_channel {
namespace {

constexpr std::size_t kPinnedBytes = std::size_t{4} << 20;
constexpr std::size_t kPinnedPieces = 4;
constexpr std::chrono::seconds kForTheDevice{10};

}  // namespace

CopyIn::CopyIn(IpcDriver& driver, ChannelDevice& device) : device_(device), stream_(device.MakeStream()) {
  try {
    event_ = driver.MakeEvent();
    handle_ = event_->handle();
  } catch (const Error& error) {
    log::info("cuda_ipc: receivers are told of a version once it is copied in: {}", error.what());
    event_.reset();
  }
}

std::uint64_t CopyIn::Queue(std::span<const OfferedTensor> from, std::span<std::byte* const> to) {
  const std::lock_guard queueing(queueing_);
  try {
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (from[i].bytes == 0) continue;
      if (device_.Reaches(from[i].data)) {
        Copy(to[i], from[i].data, from[i].bytes);
      } else {
        CopyPageable(from[i], to[i]);
      }
    }
    const std::lock_guard lock(mutex_);
    if (event_ != nullptr) event_->Record(*stream_);
    return last_ = stream_->Mark();
  } catch (...) {
    Await(last_);
    throw;
  }
}

void CopyIn::CopyPageable(const OfferedTensor& from, std::byte* to) {
  for (std::size_t at = 0; at < from.bytes; at += kPinnedBytes) {
    if (pieces_.size() < kPinnedPieces) pieces_.push_back({Buffer(device_.pinned_memory(), kPinnedBytes)});
    PinnedPiece& piece = pieces_[next_++ % kPinnedPieces];
    Await(piece.read);
    const std::size_t bytes = std::min<std::size_t>(kPinnedBytes, from.bytes - at);
    std::memcpy(piece.memory.data(), from.data + at, bytes);
    piece.read = Copy(to + at, piece.memory.data(), bytes);
  }
}

std::uint64_t CopyIn::Copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  stream_->Copy(to, from, bytes);
  return last_ = stream_->Mark();
}

bool CopyIn::Reached(std::uint64_t mark) {
  const std::lock_guard lock(mutex_);
  return stream_->Reached(mark);
}

bool CopyIn::Idle() {
  const std::lock_guard lock(mutex_);
  return stream_->Reached(last_);
}

void CopyIn::Await(std::uint64_t mark) {
  for (const Deadline deadline = Deadline::After(kForTheDevice); !Reached(mark);) {
    if (deadline.Passed()) {
      throw Error(ErrorCode::kDeadlineExceeded, "cuda_ipc: the device has not copied an offer in for ten seconds");
    }
    std::this_thread::sleep_for(kDeviceTick);
  }
}

}  // namespace layercast::cuda_ipc_channel
