#include "src/transport/ucx/ucx_transport.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/transport/channel/connection_guard.h"
#include "src/transport/ucx/one_sided/read_lanes.h"
#include "src/transport/ucx/one_sided/ucx_one_sided.h"
#include "src/transport/ucx/one_sided/ucx_reading_end.h"
#include "src/transport/ucx/ucx_fetching_end.h"
#include "src/transport/ucx/ucx_offering_end.h"
#include "src/transport/ucx/wire/greeting.h"
#include "src/transport/ucx/wire/settings.h"

namespace layercast {
namespace {

using ucx_channel::Greeted;
using ucx_channel::UcxFetchingEnd;
using ucx_channel::UcxParts;

constexpr std::chrono::minutes kAgainAfter{1};

class UcxTransport final : public Transport {
 public:
  explicit UcxTransport(UcxParts parts) : parts_(std::move(parts)) {}

  std::string_view name() const override { return "ucx"; }
  // Over shared memory only. Between hosts, whoever reaches UCX's port or queue pair can write to any memory of the
  // process, which nobody should open without having been asked to.
  bool ByDefault(const HostIdentity& mine, const HostIdentity& theirs) const override {
    return ucx_channel::ShareMemory(mine, theirs);
  }
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& options) const override {
    return std::make_unique<ucx_channel::UcxOfferingEnd>(options.bind_host, parts_);
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    const bool reads = parts_.one_sided != nullptr && parts_.one_sided->Here() && Deadline(no_reads_before_).Passed();
    Greeted greeted = Greet(address, reads, deadline);
    if (greeted.welcome.lanes == ucx_channel::Lanes::kReads) {
      if (auto end = MakeReadingEnd(address, std::move(greeted), deadline)) return end;
      greeted = Greet(address, false, deadline);  // throws if the publisher is gone, which says nothing of reads
      no_reads_before_ = Deadline::After(kAgainAfter).at();
    }
    return std::make_unique<UcxFetchingEnd>(address, std::move(greeted), deadline);
  }

 private:
  static Greeted Greet(const std::string& address, bool reads, Deadline deadline) {
    return ConnectionGuard(ucx_channel::PeerAt(address)).Run([&] {
      return ucx_channel::Greet(ControlAddress::Parse("ucx", address), reads, deadline);
    });
  }

  // Null if reads do not work, though both ends seemed able to read. Takes at most half of the time, so that the other
  // half is left for messages.
  std::unique_ptr<FetchingEnd> MakeReadingEnd(const std::string& address, Greeted greeted, Deadline deadline) const {
    try {
      return std::make_unique<ucx_channel::UcxReadingEnd>(
          address, std::move(greeted), parts_.one_sided->MakeReads(),
          deadline.AtMost((deadline.at() - Deadline::Clock::now()) / 2));
    } catch (const Error& error) {
      if (deadline.Stopped()) throw;
      log::warn("{}; going on with messages", error.what());
      return nullptr;
    }
  }

  const UcxParts parts_;
  mutable std::atomic<Deadline::Clock::time_point> no_reads_before_{};  // set when reads did not work
};

}  // namespace

std::unique_ptr<Transport> MakeUcxTransport() {
  return MakeUcxTransport(
      {std::make_shared<ucx_channel::UcxOneSided>(ucx_channel::RdmaLanes(std::getenv("UCX_TLS"))), false});
}

std::unique_ptr<Transport> MakeUcxTransport(UcxParts parts) { return std::make_unique<UcxTransport>(std::move(parts)); }

}  // namespace layercast
