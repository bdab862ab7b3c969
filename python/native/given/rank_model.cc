#include "python/native/given/rank_model.h"

#include "layercast/model/registry.h"
#include "layercast/model_description.h"
#include "layercast/noise/noise_stages.h"
#include "python/native/given/recording.h"
#include "python/native/options.h"
#include "python/native/python_tensors.h"

namespace layercast::python {

RankModel ModelFrom(const nb::kwargs& options) {
  RankModel model{.directory = Option(options, "directory", std::string())};
  if (options.contains("recorded")) model.recorded = nb::cast<nb::dict>(options["recorded"]);
  model.parallel = {.tp_rank = Option(options, "tp_rank", 0),
                    .tp_size = Option(options, "tp_size", 1),
                    .ep_rank = Option(options, "ep_rank", 0),
                    .ep_size = Option(options, "ep_size", 1),
                    .pp_rank = Option(options, "pp_rank", 0),
                    .pp_size = Option(options, "pp_size", 1)};
  model.quantization.recipe = Option(options, "quantization", std::string("none"));
  model.quantization.power_of_two_scales = Option(options, "power_of_two_scales", false);
  model.quantization.requantize = Option(options, "requantize", false);
  model.quantization.layout = {.row_alignment = Option(options, "row_alignment", std::int64_t{1}),
                               .column_alignment = Option(options, "column_alignment", std::int64_t{1}),
                               .transposed = Option(options, "transposed", false),
                               .column_major = Option(options, "column_major", false)};
  return model;
}

std::unique_ptr<Module> TreeOf(const RankModel& model) {
  if (model.recorded) return layercast::TreeOf(RecordingFrom(*model.recorded));
  return ModelRegistry::Builtin().Build(ModelDescription::FromDirectory(model.directory), model.parallel);
}

ReceiverOptions ReceiverOptionsFrom(const nb::kwargs& options) {
  return {.engine = Option(options, "engine", std::string("engine")),
          .channel = Option(options, "channel", std::string()),
          .threads = Option(options, "threads", std::size_t{2}),
          .buffer_limit = Option(options, "buffer_limit", std::uint64_t{0}),
          .relay = Option(options, "relay", std::string()),
          .keep_source = Option(options, "keep_source", false),
          .delta = DeltaUseNamed(Option(options, "delta", std::string("auto"))),
          .keys = KeysFrom(options),
          .timeout = Seconds(options, "timeout", 300.0),
          .peer_timeout = Seconds(options, "peer_timeout", 5.0),
          .commit = CommitPolicyNamed(Option(options, "commit", std::string("staged"))),
          .noise = NoiseUseNamed(Option(options, "noise", std::string("shared")))};
}

std::vector<CapturedBuffer> BuffersFrom(const nb::dict& tensors) {
  std::vector<CapturedBuffer> buffers;
  for (const auto& [name, tensor] : tensors) buffers.push_back(BufferFrom(nb::cast<std::string>(name), tensor));
  return buffers;
}

}  // namespace layercast::python
