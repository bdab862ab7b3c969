#include "src/transport/ucx/one_sided/ucx_memory.h"

#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/transport/ucx/wire/remote_key.h"
#include "src/transport/ucx/wire/ucx_link.h"
#include "src/transport/ucx/wire/ucx_status.h"

namespace layercast::ucx_channel {
namespace {

class UcxReadTarget final : public ReadTarget {
 public:
  explicit UcxReadTarget(std::shared_ptr<UcxContext> context) : link_(std::move(context)) {}
  std::vector<std::byte> Address() const override { return link_.Address(); }
  bool Progress() override { return link_.Progress(); }
  bool Arm() override { return link_.Arm(); }
  int fd() const override { return link_.fd(); }

 private:
  UcxLink link_;  // not connected: the receiver's endpoint leads here, and this end needs none
};

}  // namespace

UcxRegisteredMemory::UcxRegisteredMemory(std::shared_ptr<UcxContext> context, ucp_mem_h mapped)
    : context_(std::move(context)), mapped_(mapped) {
  try {
    TakeKey();
  } catch (const Error& error) {
    ucp_mem_unmap(context_->get(), mapped_);
    throw Error(ErrorCode::kUnsupported, std::string("memory that UCX registered cannot be read: ") + error.what());
  }
}

void UcxRegisteredMemory::TakeKey() {
  void* key = nullptr;
  std::size_t size = 0;
  Expect(ucp_rkey_pack(context_->get(), mapped_, &key, &size), "make a key");
  const auto* bytes = static_cast<const std::byte*>(key);
  key_.assign(bytes, bytes + size);
  ucp_rkey_buffer_release(key);
  CheckKey(key_);
}

std::shared_ptr<UcxContext> MakeReadContext(const ReadLanes& lanes, std::uint64_t features, bool by_threads) {
  if (lanes.transports.empty()) throw Error(ErrorCode::kUnsupported, "UCX_TLS names no RDMA");
  auto context = std::make_shared<UcxContext>(MakeReadSettings(lanes), features, by_threads);
  if (!lanes.Allow(context->Lanes())) throw Error(ErrorCode::kUnsupported, "UCX has other lanes than were asked for");
  return context;
}

// The context does not ask for UCP_FEATURE_RMA: a worker with it serves, in software, reads and writes of any memory
// that its peers name. Reads by a device do not need it. UCP_FEATURE_AM is there only so that UCX makes lanes at all.
UcxRemoteMemory::UcxRemoteMemory(const ReadLanes& lanes) : context_(MakeReadContext(lanes, UCP_FEATURE_AM, true)) {}

std::unique_ptr<RegisteredMemory> UcxRemoteMemory::Register(std::span<const std::byte> memory) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_PROT;
  params.address = const_cast<std::byte*>(memory.data());  // UCX takes no const pointer; nobody is to write
  params.length = memory.size();
  params.prot = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_REMOTE_READ;
  ucp_mem_h mapped = nullptr;
  if (const ucs_status_t status = ucp_mem_map(context_->get(), &params, &mapped); status != UCS_OK) {
    throw Error(ErrorCode::kUnsupported, "UCX cannot register " + std::to_string(memory.size()) +
                                             " bytes (is the memlock limit too low?): " + ucs_status_string(status));
  }
  return std::make_unique<UcxRegisteredMemory>(context_, mapped);
}

std::unique_ptr<ReadTarget> UcxRemoteMemory::MakeTarget() { return std::make_unique<UcxReadTarget>(context_); }

}  // namespace layercast::ucx_channel
