#include "src/transport/ucx/one_sided/ucx_reads.h"

#include <sstream>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/transport/ucx/one_sided/ucx_memory.h"
#include "src/transport/ucx/wire/remote_key.h"
#include "src/transport/ucx/wire/ucx_status.h"

namespace layercast::ucx_channel {
namespace {

// Bytes added after a key: a memory domain reads its part at the length that it expects, not at the one in the key.
constexpr std::size_t kAfterKey = 256;

class UcxKey final : public RemoteKey {
 public:
  UcxKey(ucp_ep_h endpoint, std::span<const std::byte> key) {
    std::vector<std::byte> padded(key.begin(), key.end());
    padded.resize(key.size() + kAfterKey);
    Expect(ucp_ep_rkey_unpack(endpoint, padded.data(), &key_), "take a key");
  }
  ~UcxKey() override { ucp_rkey_destroy(key_); }
  UcxKey(const UcxKey&) = delete;
  UcxKey& operator=(const UcxKey&) = delete;

  ucp_rkey_h get() const { return key_; }

 private:
  ucp_rkey_h key_ = nullptr;
};

// Splits "rc_mlx5/mlx5_0:1+ud_mlx5/mlx5_0:1" into its lanes.
std::vector<std::string> Split(const std::string& lanes) {
  std::istringstream list(lanes);
  std::vector<std::string> split;
  for (std::string lane; std::getline(list, lane, '+');) split.push_back(lane);
  return split;
}

}  // namespace

UcxReads::UcxReads(ReadLanes lanes)
    : lanes_(std::move(lanes)), link_(MakeReadContext(lanes_, UCP_FEATURE_RMA, false)) {}

void UcxReads::Connect(std::span<const std::byte> address) {
  link_.Connect(address);
  if (!lanes_.Allow(Split(link_.lane()))) {
    throw Error(ErrorCode::kUnsupported, "UCX would not read by a device, but by " + link_.lane());
  }
}

std::unique_ptr<RemoteKey> UcxReads::Open(std::span<const std::byte> key) {
  CheckKey(key);
  return std::make_unique<UcxKey>(link_.endpoint(), key);
}

bool UcxReads::Read(const RemoteKey& key, std::uint64_t address, std::span<std::byte> destination,
                    std::uint64_t ticket) {
  const auto read = under_way_.insert(under_way_.end(), {this, ticket});
  read->self = read;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = &OnRead;
  params.user_data = &*read;
  const ucs_status_ptr_t request = ucp_get_nbx(link_.endpoint(), destination.data(), destination.size(), address,
                                               static_cast<const UcxKey&>(key).get(), &params);
  if (UCS_PTR_IS_PTR(request)) {
    link_.Began();
    return false;
  }
  under_way_.erase(read);
  if (request == nullptr) return true;
  failure_ = std::string("UCX cannot read: ") + ucs_status_string(UCS_PTR_STATUS(request));
  return false;
}

std::optional<std::uint64_t> UcxReads::TakeLanded() {
  if (landed_.empty()) return std::nullopt;
  const std::uint64_t ticket = landed_.front();
  landed_.pop_front();
  return ticket;
}

void UcxReads::OnRead(void* request, ucs_status_t status, void* read) {
  ucp_request_free(request);
  UnderWay& ended = *static_cast<UnderWay*>(read);
  UcxReads& self = *ended.owner;
  self.link_.Ended();
  if (status == UCS_OK) {
    self.landed_.push_back(ended.ticket);
  } else if (self.failure_.empty()) {
    self.failure_ = std::string("UCX lost a read: ") + ucs_status_string(status);
  }
  self.under_way_.erase(ended.self);
}

}  // namespace layercast::ucx_channel
