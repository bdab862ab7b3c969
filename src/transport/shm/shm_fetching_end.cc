#include "src/transport/shm/shm_fetching_end.h"

#include <sys/socket.h>

#include <chrono>
#include <exception>
#include <utility>

#include "layercast/error.h"
#include "src/net/local_socket.h"
#include "src/transport/channel/offer_views.h"

namespace layercast::shm_channel {
namespace {

constexpr std::string_view kPrefix = "shm://";
constexpr std::chrono::milliseconds kAttachTime{3000};  // a publisher that takes longer to answer is frozen

}  // namespace

ShmFetchingEnd::ShmFetchingEnd(const std::string& address, std::shared_ptr<SegmentCache> cache, Deadline deadline)
    : address_(address), guard_("shm: publisher at " + address), cache_(std::move(cache)) {
  guard_.Run([&] {
    if (!address.starts_with(kPrefix)) throw Error(ErrorCode::kUnavailable, "not an address of this channel");
    socket_ = ConnectLocally(SOCK_SEQPACKET, address.substr(kPrefix.size()), deadline);
    std::vector<UniqueFd> fds;
    const Message answer = Ask({Kind::kHello, kVersion, kChannelMagic}, fds, deadline);
    if (answer.kind != Kind::kWelcome || answer.value != kChannelMagic || answer.number == 0) {
      throw Error(ErrorCode::kUnavailable, "it does not speak this channel's protocol");
    }
  });
  cache_->Begin(address_, socket_.get());
}

void ShmFetchingEnd::Submit(const ChunkRequest& request) {
  guard_.Run([&] {
    ExpectThere();
    const ReadTable& table = Attached(request.offer_id);
    done_.push_back({request.ticket, ViewsOf(table.tensors(), request.regions)});
  });
}

std::optional<ChunkCompletion> ShmFetchingEnd::Poll(Deadline /*deadline*/) {
  return guard_.Run([&]() -> std::optional<ChunkCompletion> {
    ExpectThere();
    if (done_.empty()) return std::nullopt;
    ChunkCompletion completion = std::move(done_.front());
    done_.pop_front();
    return completion;
  });
}

bool ShmFetchingEnd::Rest() noexcept {
  if (!socket_ || !done_.empty()) return false;
  LetGo();
  rests_ = true;
  return true;
}

bool ShmFetchingEnd::Resume() noexcept {
  try {
    guard_.Run([&] { ExpectThere(); });
    cache_->Begin(address_, socket_.get());
  } catch (const std::exception&) {
    return false;
  }
  rests_ = false;
  return true;
}

void ShmFetchingEnd::Close() noexcept {
  guard_.Close();
  LetGo();
  socket_ = UniqueFd();
}

void ShmFetchingEnd::LetGo() noexcept {
  done_.clear();
  tables_.clear();
  used_.clear();
  if (socket_ && !rests_) cache_->End();
}

const ReadTable& ShmFetchingEnd::Attached(std::uint64_t offer_id) {
  auto found = tables_.find(offer_id);
  if (found == tables_.end() || !found->second.live()) {
    std::erase_if(tables_, [](const auto& entry) { return !entry.second.live(); });
    Attach(offer_id);
    found = tables_.find(offer_id);
  }
  return found->second;
}

void ShmFetchingEnd::Attach(std::uint64_t offer_id) {
  std::vector<UniqueFd> fds;
  Message answer;
  try {
    answer = Ask({Kind::kAttach, 0, offer_id}, fds, Deadline::After(kAttachTime));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDeadlineExceeded) throw;
    throw Error(ErrorCode::kUnavailable, error.what());
  }
  if (answer.kind == Kind::kRefused && answer.number == kNoSuchOffer && answer.value == offer_id) {
    throw Error(ErrorCode::kNotFound, "offer " + std::to_string(offer_id) + " is not there");
  }
  if (answer.kind != Kind::kAttached || answer.value != offer_id || fds.size() != std::size_t{answer.number} + 1) {
    throw Error(ErrorCode::kCorrupt, "a wrong answer to ATTACH");
  }
  std::vector<std::shared_ptr<const Mapping>> files;
  for (const UniqueFd& fd : fds) {
    const auto map = [&] { return std::make_shared<const Mapping>(MapReadOnly(fd)); };
    files.push_back(cache_->Get(IdentityOf(fd), address_, map));
  }
  used_.insert(files.begin(), files.end());
  const TablePlace place{files.front(), answer.offset, answer.bytes};
  files.erase(files.begin());
  tables_.emplace(offer_id, ReadTable(offer_id, place, std::move(files)));
}

Message ShmFetchingEnd::Ask(const Message& question, std::vector<UniqueFd>& fds, Deadline deadline) {
  if (!SendMessage(socket_, question)) throw Error(ErrorCode::kUnavailable, "the publisher is gone");
  while (WaitReadable(socket_, deadline)) {
    Message answer;
    switch (ReceiveMessage(socket_, answer, &fds)) {
      case Received::kMessage: return answer;
      case Received::kNothing: continue;
      case Received::kEnd: throw Error(ErrorCode::kUnavailable, "the publisher is gone");
      case Received::kGarbage: throw Error(ErrorCode::kCorrupt, "a message of a wrong size");
    }
  }
  throw Error(ErrorCode::kDeadlineExceeded, "it did not answer in time");
}

void ShmFetchingEnd::ExpectThere() {
  Message message;
  switch (ReceiveMessage(socket_, message)) {
    case Received::kNothing: return;
    case Received::kEnd:
      cache_->DropAll(address_);  // what was mapped after ProcessWatch had told of its end
      throw Error(ErrorCode::kUnavailable, "the publisher is gone");
    default: throw Error(ErrorCode::kCorrupt, "a message that nobody asked for");
  }
}

}  // namespace layercast::shm_channel
