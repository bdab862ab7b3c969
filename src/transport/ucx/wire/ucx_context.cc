#include "src/transport/ucx/wire/ucx_context.h"

#include <cstddef>
#include <sstream>

#include "src/base/exhausted.h"
#include "src/transport/ucx/wire/printed.h"
#include "src/transport/ucx/wire/ucx_status.h"

namespace layercast::ucx_channel {
namespace {

// What a context takes with its worker and endpoint, and some more. Without memory UCX ends the process, and without
// descriptors it says no more than that input or output failed.
constexpr std::size_t kDescriptors = 16;
constexpr std::size_t kBytes = std::size_t{64} << 20;

}  // namespace

UcxContext::UcxContext(const Settings& settings, std::uint64_t features, bool by_threads) : features_(features) {
  ExpectRoomFor({.descriptors = kDescriptors, .bytes = kBytes}, "ucx: a connection");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = features | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = by_threads ? 1 : 0;
  Expect(ucp_init(&params, settings.get(), &context_), "be set up");
}

// Reads lines such as "#      resource 0  :  md 0  dev 0  flags -- posix/memory".
std::vector<std::string> UcxContext::Lanes() const {
  std::istringstream lines(Printed([this](std::FILE* stream) { ucp_context_print_info(context_, stream); }));
  std::vector<std::string> lanes;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" resource ") == std::string::npos) continue;
    lanes.push_back(line.substr(line.rfind(' ') + 1));
  }
  return lanes;
}

}  // namespace layercast::ucx_channel
