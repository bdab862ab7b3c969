#include "engine_side/reload/layout/prepared_layout.h"

#include <algorithm>
#include <utility>

#include "engine_side/reload/layout/amax_requests.h"

namespace layercast {

PreparedLayout::PreparedLayout(LoadPlan of, const Manifest& manifest, const KernelLayout& model_kernel,
                               const LayerRecipes& recipes, std::uint64_t chunk_bytes)
    : plan(std::move(of)), kernel(model_kernel.For(plan, recipes)) {
  ScheduleOptions options;
  options.chunk_bytes = chunk_bytes;
  options.row_multiple = static_cast<std::uint64_t>(recipes.RowMultiple(plan));
  snapshot = MakeSchedule(plan, manifest, options);
  options.one_tensor_per_chunk = true;
  stream = MakeSchedule(plan, manifest, options);
  stream_chunks.resize(manifest.size());
  const std::vector<Chunk>& chunks = stream.schedule.chunks();
  for (std::uint32_t i = 0; i < chunks.size(); ++i) {
    stream_chunks[plan.placements()[stream.pieces[chunks[i].first_region].placement].tensor].push_back(i);
  }
  for (std::uint32_t tensor = 0; tensor < plan.parts().size(); ++tensor) {
    const std::vector<HeldPart>& parts = plan.parts()[tensor];
    for (std::size_t i = 0; i < parts.size(); ++i) part_places[parts[i].number] = {tensor, i};
  }
  amax_requests = AmaxRequests(plan, manifest, recipes);
  SayWhenNeeded();
  ShareRequests(manifest);
}

// Sets `before_chunk` of each request. A parameter's scale depends on all tensors that fill it, so their magnitudes are
// needed before the first piece of any of them.
void PreparedLayout::SayWhenNeeded() {
  const std::vector<Chunk>& chunks = snapshot.schedule.chunks();
  std::vector<std::uint32_t> first_chunk(plan.parameters().size(), 0);
  for (auto chunk = static_cast<std::uint32_t>(chunks.size()); chunk-- > 0;) {
    for (std::uint32_t i = 0; i < chunks[chunk].num_regions; ++i) {
      const Piece& piece = snapshot.pieces[chunks[chunk].first_region + i];
      first_chunk[plan.placements()[piece.placement].parameter] = chunk;
    }
  }
  for (AmaxRequest& request : amax_requests) {
    request.before_chunk = static_cast<std::uint32_t>(chunks.size());
    for (const std::uint32_t placement : plan.PlacementsOf(request.tensor)) {
      request.before_chunk = std::min(request.before_chunk, first_chunk[plan.placements()[placement].parameter]);
    }
  }
}

void PreparedLayout::ShareRequests(const Manifest& manifest) {
  for (const AmaxRequest& request : amax_requests) {
    if (plan.CutsOf(request.tensor).empty()) {  // the whole tensor, in the shape that it is read in
      part_requests.push_back({request, request.tensor, Box::Whole(plan.SourceShape(manifest, request.tensor))});
      if (!plan.parts().empty()) part_requests.back().request.tensor = plan.parts()[request.tensor].front().number;
      continue;
    }
    for (const HeldPart& part : plan.CutsOf(request.tensor)) {
      part_requests.push_back({request, request.tensor, part.box});
      part_requests.back().request.tensor = part.number;
    }
  }
  std::ranges::sort(part_requests, {}, [](const PartRequest& part) { return part.request.tensor; });
}

std::vector<AmaxRequest> PreparedLayout::SessionRequests() const {
  std::vector<AmaxRequest> requests;
  for (const PartRequest& part : part_requests) requests.push_back(part.request);
  return requests;
}

}  // namespace layercast
