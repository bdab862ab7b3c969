#include "src/transport/cuda_ipc/copy_in.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/base/log.h"
#include "src/device/device_tick.h"

namespace layercast::cuda_ipc_channel {
namespace {

constexpr std::size_t kPinnedBytes = std::size_t{4} << 20;
constexpr std::size_t kPinnedPieces = 4;

}  // namespace

CopyIn::CopyIn(IpcDriver& driver, ChannelDevice& device, std::chrono::milliseconds patience)
    : device_(device), patience_(patience), stream_(device.MakeStream()) {
  try {
    event_ = driver.MakeEvent();
    handle_ = event_->handle();
  } catch (const Error& error) {
    log::info("cuda_ipc: receivers are told of a version once it is copied in: {}", error.what());
    event_.reset();
  }
}

std::uint64_t CopyIn::Queue(const Offer& offer, std::span<std::byte* const> to) {
  const std::lock_guard queueing(queueing_);
  try {
    for (std::size_t i = 0; i < to.size(); ++i) CopyTensor(offer.tensors[i], to[i], offer.id);
    const std::lock_guard lock(mutex_);
    if (event_ != nullptr) event_->Record(*stream_);
    return last_ = stream_->Mark();
  } catch (...) {
    Await(last_, offer.id);
    throw;
  }
}

void CopyIn::CopyTensor(const OfferedTensor& from, std::byte* to, std::uint64_t offer_id) {
  if (from.bytes == 0) return;
  if (!device_.Reaches(from.data)) return CopyPageable(from, to, offer_id);
  Copy(to, from.data, from.bytes);
}

void CopyIn::CopyPageable(const OfferedTensor& from, std::byte* to, std::uint64_t offer_id) {
  for (std::size_t at = 0; at < from.bytes; at += kPinnedBytes) {
    if (pieces_.size() < kPinnedPieces) pieces_.push_back({Buffer(device_.pinned_memory(), kPinnedBytes)});
    PinnedPiece& piece = pieces_[next_++ % kPinnedPieces];
    Await(piece.read, offer_id);
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

void CopyIn::Await(std::uint64_t mark, std::uint64_t offer_id) {
  for (Deadline complaint = Deadline::After(patience_); !Reached(mark); std::this_thread::sleep_for(kDeviceTick)) {
    if (!complaint.Passed()) continue;
    log::error("cuda_ipc: offer {}: the device has not copied it in for another {} ms. Its memory is kept until then.",
               offer_id, patience_.count());
    complaint = Deadline::After(patience_);
  }
}

}  // namespace layercast::cuda_ipc_channel
