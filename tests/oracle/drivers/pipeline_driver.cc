// Loads a checkpoint in one process and over no wire, and writes what would be served: how test_pipeline.py compares
// the load plan, the pipeline and the receiver with the oracle.
//   pipeline_driver FOLDER TP RANK RECIPE OUT [way=pieces|path|iterator|ENDPOINT,...] [before=FOLDER] [channel=C]
//   [pow2]
//                   [requantize] [direct] [device] [experts] [shuffled=SEED] [chunk=BYTES] [fill=BYTE] [pp=STAGES]
//                   [stage=STAGE] [layers=OF_A_STAGE,...] [draft=mtp|FOLDER] [input_scales] [kv_cache_scales]
//                   [rules=FILE] [state=FOLDER]
// pieces: straight into the pipeline, in order or shuffled; the others, and publishers' endpoints, through a Receiver,
// which takes the version of before=FOLDER first where that is given. state=FOLDER: what is loaded by path are kernel
// tensors, `sharded_state`, for the model of FOLDER.
// experts: each is whole on one rank. device: the engine's buffers are on the device that this program is linked with;
// not for pieces.
#include <algorithm>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "engine_side/model/registry/named_draft.h"
#include "engine_side/reload/commit/committer.h"
#include "engine_side/reload/layout/amax_requests.h"
#include "engine_side/reload/pipeline/pipeline.h"
#include "engine_side/reload/work/host_work.h"
#include "layercast/checkpoint_source.h"
#include "layercast/error.h"
#include "layercast/model/config.h"
#include "layercast/model/held_scales.h"
#include "layercast/model/weight_rules.h"
#include "layercast/model_description.h"
#include "layercast/receiver.h"
#include "src/base/memory/counting_memory.h"
#include "src/checkpoint/formats/checkpoint.h"
#include "src/checkpoint/safetensors/safetensors_writer.h"
#include "src/tensor/manifest/manifest_entry.h"
#include "tests/support/device/test_device.h"

namespace layercast {
namespace {

struct Job {
  std::string folder, recipe, out, way = "pieces", before, channel, draft, rules, state;
  ParallelConfig parallel;
  ScheduleOptions schedule;
  HeldScales scales;
  bool power_of_two = false, requantize = false, direct = false, device = false, partial = false;
  CommitPolicy commit = CommitPolicy::kStaged;
  long shuffle_seed = -1;
  int fill = 0;
};

std::vector<std::int64_t> Numbers(const std::string& list) {
  std::vector<std::int64_t> numbers;
  std::istringstream stream(list);
  for (std::string number; std::getline(stream, number, ',');) numbers.push_back(std::stoll(number));
  return numbers;
}

Job Parse(const std::vector<std::string>& arguments) {
  if (arguments.size() < 5) throw Error(ErrorCode::kInvalidArgument, "FOLDER TP RANK RECIPE OUT ...");
  Job job;
  job.folder = arguments[0];
  job.parallel = {.tp_rank = std::stoi(arguments[2]), .tp_size = std::stoi(arguments[1])};
  job.recipe = arguments[3];
  job.out = arguments[4];
  for (const std::string& word : std::span(arguments).subspan(5)) {
    const std::string value = word.substr(word.find('=') + 1);
    if (word == "pow2") job.power_of_two = true;
    if (word == "requantize") job.requantize = true;
    if (word == "direct") job.direct = true;
    if (word == "device") job.device = true;
    if (word == "partial") job.partial = true;
    if (word.starts_with("commit=")) job.commit = CommitPolicyNamed(value);
    if (word == "experts") job.parallel.SpreadExperts();
    if (word == "input_scales") job.scales.inputs = true;
    if (word == "kv_cache_scales") job.scales.kv_cache = true;
    if (word.starts_with("way=")) job.way = value;
    if (word.starts_with("before=")) job.before = value;
    if (word.starts_with("channel=")) job.channel = value;
    if (word.starts_with("shuffled=")) job.shuffle_seed = std::stol(value);
    if (word.starts_with("chunk=")) job.schedule.chunk_bytes = std::stoull(value);
    if (word.starts_with("fill=")) job.fill = std::stoi(value);
    if (word.starts_with("pp=")) job.parallel.pp_size = std::stoi(value);
    if (word.starts_with("stage=")) job.parallel.pp_rank = std::stoi(value);
    if (word.starts_with("draft=")) job.draft = value;
    if (word.starts_with("rules=")) job.rules = value;
    if (word.starts_with("state=")) job.state = value;
    if (word.starts_with("layers=")) job.parallel.pp_layer_partition = Numbers(value);
  }
  return job;
}

template <class Elements>
void ShuffleIfAsked(const Job& job, Elements& elements) {
  if (job.shuffle_seed < 0) return;
  std::ranges::shuffle(elements, std::mt19937(static_cast<std::uint32_t>(job.shuffle_seed)));
}

std::unique_ptr<testing::TestDevice> DeviceOf(const Job& job) {
  if (!job.device) return nullptr;
  std::string why;
  std::unique_ptr<testing::TestDevice> device = testing::MakeTestDevice(why);
  if (device == nullptr) throw Error(ErrorCode::kUnsupported, "no CUDA: " + why);
  return device;
}

// An engine's buffers for every kernel tensor of the plan, on the device if there is one.
struct EngineMemory {
  EngineMemory(const LoadPlan& plan, const LayerRecipes& recipes, MemoryResource& memory, testing::TestDevice* device) {
    for (const TensorSpec& spec : KernelTensorsOf(plan, recipes)) {
      const auto bytes = static_cast<std::size_t>(spec.num_bytes());
      if (device != nullptr) {
        table.push_back({spec.name, device->Allocate(bytes), spec.dtype, spec.shape, {}, device->device()});
        continue;
      }
      storage.emplace_back(memory, bytes);
      table.push_back({spec.name, storage.back().data(), spec.dtype, spec.shape, {}, {}});
    }
  }

  std::vector<Buffer> storage;
  std::vector<CapturedBuffer> table;
};

CheckpointSource CheckpointOf(const Job& job) { return WithNamedDraft({.path = job.folder}, job.draft); }

// As publishers make one.
Manifest ManifestOf(const Checkpoint& checkpoint, WorkerPool& pool) {
  std::vector<ManifestEntry> entries;
  const auto weights = checkpoint.Weights();
  while (const auto named = weights->Next()) entries.push_back(EntryOf(named->name, named->tensor, pool));
  return {"driver", 0, std::move(entries)};
}

// Everything that a load needs. One thread only.
struct Bench {
  explicit Bench(const Job& given)
      : job(given),
        memory(host, static_cast<std::byte>(given.fill)),
        checkpoint(Checkpoint::Open(CheckpointOf(given))),
        manifest(ManifestOf(checkpoint, pool)),
        recipes(given.recipe, {.power_of_two_scales = given.power_of_two}),
        model(BuildModel(given)),
        plan(given.way == "pieces" ? LoadPlan::Build(*model, manifest) : LoadPlan::WithoutTensors(*model)),
        device(DeviceOf(given)),
        engine(plan, recipes, memory, device.get()),
        captured(CapturedBuffers::Adopt(engine.table, nullptr, device != nullptr ? device->Opener() : nullptr)) {}

  static std::unique_ptr<Module> BuildModel(const Job& job);

  const Job& job;
  WorkerPool pool{2};
  HostMemory host;
  FillingMemory memory;
  FailPoints failpoints;
  Checkpoint checkpoint;
  Manifest manifest;
  LayerRecipes recipes;
  std::unique_ptr<Module> model;
  LoadPlan plan;
  std::unique_ptr<testing::TestDevice> device;  // null: host memory
  EngineMemory engine;
  CapturedBuffers captured;
};

std::unique_ptr<Module> Bench::BuildModel(const Job& job) {
  std::unique_ptr<Module> model =
      BuildWithNamedDraft(ModelDescription::FromDirectory(job.folder), job.parallel, NamedDraft::Read(job.draft));
  HoldScales(*model, job.scales);
  if (!job.rules.empty()) WeightRules::FromFile(job.rules).ApplyTo(*model);
  return model;
}

void GiveAmax(Bench& bench, AmaxTable& amax) {
  for (const AmaxRequest& request : AmaxRequests(bench.plan, bench.manifest, bench.recipes)) {
    const TensorSpec& spec = bench.manifest.entry(request.tensor).spec;
    amax.AddAxes(request.tensor, request.kept, Box::Whole(spec.shape),
                 AmaxOver(spec, bench.checkpoint.Tensor(spec.name).tensor.data, request.kept, bench.pool));
  }
}

void LoadPieces(Bench& bench) {
  const KernelLayout layout(bench.plan, bench.recipes, bench.captured);
  const std::unique_ptr<Committer> committer = MakeCommitter(CommitPolicy::kStaged, {.layout = layout,
                                                                                     .kept_memory = bench.memory,
                                                                                     .layer_memory = bench.memory,
                                                                                     .pool = bench.pool,
                                                                                     .failpoints = bench.failpoints});
  ScheduleOptions options = bench.job.schedule;
  options.row_multiple = static_cast<std::uint64_t>(bench.recipes.RowMultiple(bench.plan));
  std::vector<Piece> pieces = MakeSchedule(bench.plan, bench.manifest, options).pieces;
  HostWork work(bench.memory, bench.pool);
  ReloadPipeline pipeline(
      {bench.plan, bench.manifest, layout, bench.recipes, committer->Begin(), work, bench.pool, bench.failpoints},
      bench.job.direct ? std::span<const Piece>(pieces) : std::span<const Piece>());
  GiveAmax(bench, pipeline.amax());
  ShuffleIfAsked(bench.job, pieces);
  for (const Piece& piece : pieces) {
    const Region region = RegionOf(bench.plan, bench.manifest, piece);
    const NamedTensor tensor = bench.checkpoint.Tensor(bench.manifest.entry(region.tensor).spec.name);
    pipeline.Accept(piece, {tensor.tensor.data + region.offset, region.row_bytes, region.rows, region.stride});
  }
  pipeline.Finish();
  committer->Commit();
}

ReloadSource SourceOf(const Bench& bench) {
  if (!bench.job.state.empty()) return FromCheckpoint({.path = bench.job.state, .load_format = "sharded_state"});
  if (bench.job.way == "path") return FromCheckpoint(CheckpointOf(bench.job));
  if (bench.job.way != "iterator") {
    std::vector<std::string> endpoints;
    std::istringstream list(bench.job.way);
    for (std::string endpoint; std::getline(list, endpoint, ',');) endpoints.push_back(endpoint);
    return FromPublishers(std::move(endpoints));
  }
  std::vector<std::uint32_t> order(bench.checkpoint.specs().size());
  std::iota(order.begin(), order.end(), 0U);
  ShuffleIfAsked(bench.job, order);
  return FromIterator(bench.checkpoint.Weights(order), bench.checkpoint.specs());
}

void LoadThroughReceiver(Bench& bench) {
  ReceiverOptions options;
  options.direct = bench.job.direct;
  options.chunk_bytes = bench.job.schedule.chunk_bytes;
  options.channel = bench.job.channel;
  options.commit = bench.job.commit;
  if (bench.device == nullptr) options.staging_memory = options.layer_memory = &bench.memory;
  Receiver receiver(Bench::BuildModel(bench.job), bench.job.parallel,
                    {bench.job.recipe, bench.job.power_of_two, bench.job.requantize}, bench.captured, options);
  if (!bench.job.before.empty()) receiver.ReloadWeights(FromCheckpoint({.path = bench.job.before}));
  ReloadSource source = SourceOf(bench);
  source.partial = bench.job.partial;
  receiver.Stage(std::move(source), 1);
  receiver.Commit();
  receiver.VerifyServed();
}

void WriteServed(const CapturedBuffers& captured, const std::string& path) {
  std::vector<TensorSpec> specs;
  for (const CapturedBuffer& buffer : captured.buffers()) specs.push_back({buffer.name, buffer.dtype, buffer.shape});
  SafetensorsWriter writer(path, std::move(specs));
  for (const CapturedBuffer& buffer : captured.buffers()) writer.Write(buffer.name, captured.Read(buffer));
  writer.Commit();
}

void Run(const Job& job) {
  Bench bench(job);
  if (job.way == "pieces") {
    LoadPieces(bench);
  } else {
    LoadThroughReceiver(bench);
  }
  WriteServed(bench.captured, job.out);
}

}  // namespace
}  // namespace layercast

int main(int argc, char** argv) {
  try {
    layercast::Run(layercast::Parse({argv + 1, argv + argc}));
  } catch (const layercast::Error& error) {
    std::cerr << layercast::ErrorCodeName(error.code()) << ": " << error.what() << "\n";
    return 1;
  }
  return 0;
}
