// The receiver's side of one-sided reads by UCX: ucp_get_nbx, in a context of its own.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "src/transport/ucx/one_sided/read_lanes.h"
#include "src/transport/ucx/wire/remote_reads.h"
#include "src/transport/ucx/wire/ucx_link.h"

namespace layercast::ucx_channel {

// Resource; one thread only.
class UcxReads final : public RemoteReads {
 public:
  // Throws kUnavailable, and kUnsupported if UCX's context has other lanes than these.
  explicit UcxReads(ReadLanes lanes);
  ~UcxReads() override { Abandon(); }

  void Connect(std::span<const std::byte> address) override;
  std::string lane() const override { return link_.lane(); }
  std::unique_ptr<RemoteKey> Open(std::span<const std::byte> key) override;
  bool Read(const RemoteKey& key, std::uint64_t address, std::span<std::byte> destination,
            std::uint64_t ticket) override;
  std::optional<std::uint64_t> TakeLanded() override;
  bool Progress() override { return link_.Progress(); }
  bool Arm() override { return link_.Arm(); }
  int fd() const override { return link_.fd(); }
  const std::string& failure() const override { return failure_.empty() ? link_.failure() : failure_; }
  void Abandon() noexcept override { link_.Disconnect(); }

 private:
  struct UnderWay {
    UcxReads* owner;
    std::uint64_t ticket;
    std::list<UnderWay>::iterator self{};
  };
  static void OnRead(void* request, ucs_status_t status, void* read);

  const ReadLanes lanes_;
  std::list<UnderWay> under_way_;  // outlives the link, whose callbacks use it
  std::deque<std::uint64_t> landed_;
  std::string failure_;
  UcxLink link_;
};

}  // namespace layercast::ucx_channel
