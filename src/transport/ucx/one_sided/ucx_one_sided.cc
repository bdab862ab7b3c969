#include "src/transport/ucx/one_sided/ucx_one_sided.h"

#include <ucp/api/ucp.h>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/transport/ucx/one_sided/ucx_memory.h"
#include "src/transport/ucx/one_sided/ucx_reads.h"

namespace layercast::ucx_channel {

bool UcxOneSided::Here() const {
  std::call_once(asked_, [this] {
    try {
      MakeReadContext(lanes_, UCP_FEATURE_RMA, false);
      here_ = true;
    } catch (const Error& error) {  // most hosts have none
      log::debug("ucx: no one-sided reads: {}", error.what());
    }
  });
  return here_;
}

std::unique_ptr<RemoteMemory> UcxOneSided::MakeMemory() const { return std::make_unique<UcxRemoteMemory>(lanes_); }

std::unique_ptr<RemoteReads> UcxOneSided::MakeReads() const { return std::make_unique<UcxReads>(lanes_); }

}  // namespace layercast::ucx_channel
