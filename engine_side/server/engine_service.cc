#include "engine_side/server/engine_service.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine_side/engine/sampler.h"
#include "engine_side/server/generator.h"
#include "engine_side/server/reloader.h"
#include "layercast/error.h"
#include "layercast/model/config.h"
#include "src/base/bounded_queue.h"
#include "src/base/thread_name.h"

namespace layercast {
namespace {

constexpr std::size_t kQueuedCalls = 64;
constexpr std::chrono::milliseconds kForever{std::chrono::hours(24)};
constexpr std::chrono::milliseconds kRankTimeout{600'000};

// Answers of one `generate`, collected until the last sequence has ended.
class Batch {
 public:
  Batch(std::size_t size, bool single, bool logprobs, RpcReply reply)
      : answers_(size), left_(size), single_(single), logprobs_(logprobs), reply_(std::move(reply)) {}

  void Done(std::size_t index, const Sequence& sequence, const char* finish) {
    const std::lock_guard lock(mutex_);
    answers_[index] = sequence.ToJson(finish, logprobs_);
    if (--left_ > 0) return;
    if (single_) return reply_.Result(answers_.front());
    reply_.Result({{"answers", answers_}});
  }

 private:
  std::mutex mutex_;
  std::vector<Json> answers_;  // guarded by mutex_
  std::size_t left_;           // guarded by mutex_
  const bool single_;
  const bool logprobs_;
  const RpcReply reply_;
};

bool IsKernelFormat(const std::string& model) {
  return std::filesystem::exists(std::filesystem::path(model) / "model-rank-0-part-0.safetensors");
}

}  // namespace

class EngineService::Impl {
 public:
  explicit Impl(const EngineServiceOptions& options)
      : options_(options),
        config_(ModelConfig::Parse(ModelDescription::FromDirectory(options.ranks.model))),
        ranks_(options.ranks),
        generator_(ranks_),
        reloader_(ranks_, generator_, options.pause_mode),
        worker_([this] { Work(); }) {
    static_cast<void>(PauseModeNamed(options.pause_mode));
    try {
      LoadModel();
      rpc_ = std::make_unique<RpcServer>(options.endpoint, options.allow_remote,
                                         [this](const std::string& method, const Json& params, const RpcReply& reply) {
                                           Dispatch(method, params, reply);
                                         });
    } catch (...) {
      EndWorker();
      throw;
    }
  }

  ~Impl() {
    rpc_.reset();
    EndWorker();
  }

  std::string endpoint() const { return rpc_->endpoint(); }

  Json Ready() const {
    Json ready = {{"ready", true}, {"endpoint", endpoint()}};
    ready.update(Identity());
    ready["version"] = reloader_.Status()["version"];
    return ready;
  }

 private:
  void EndWorker() {
    calls_.Close();
    worker_.join();
  }

  Json Identity() const {
    return {{"pid", ::getpid()},
            {"pids", ranks_.pids()},
            {"tp", options_.ranks.tp_size},
            {"quantization", options_.ranks.recipe}};
  }

  void LoadModel() {
    const Json outcome = reloader_.Reload({{"weights_path", std::filesystem::absolute(options_.ranks.model).string()},
                                           {"is_checkpoint_format", !IsKernelFormat(options_.ranks.model)}});
    if (outcome["ok"].get<bool>()) return;
    throw Error(ErrorCode::kFailedPrecondition,
                "loading " + options_.ranks.model + ": " + outcome["error"]["message"].get<std::string>());
  }

  // On the RPC thread: what takes time goes to the worker or the generator, and answers later.
  void Dispatch(const std::string& method, const Json& params, const RpcReply& reply) {
    static const std::map<std::string, void (Impl::*)(const Json&, const RpcReply&)> kQuick = {
        {"status", &Impl::Status},
        {"generate", &Impl::Generate},
        {"resume", &Impl::Resume},
        {"init_weight_transfer_engine", &Impl::InitWeightTransfer},
        {"start_weight_update", &Impl::StartUpdate},
        {"finish_weight_update", &Impl::FinishUpdate}};
    static const std::map<std::string, void (Impl::*)(const Json&, const RpcReply&)> kSlow = {
        {"reload_weights", &Impl::ReloadWeights},
        {"update_weights", &Impl::UpdateWeights},
        {"pause", &Impl::Pause},
        {"export", &Impl::Export},
        {"verify", &Impl::Verify},
        {"digests", &Impl::Digests}};
    if (const auto quick = kQuick.find(method); quick != kQuick.end()) return (this->*quick->second)(params, reply);
    const auto slow = kSlow.find(method);
    if (slow == kSlow.end()) throw Error(ErrorCode::kNotFound, "this engine has no method '" + method + "'");
    auto call = [this, member = slow->second, params, reply] { (this->*member)(params, reply); };
    Call queued{std::move(call), reply};
    if (!calls_.Push(std::move(queued), Deadline::After(std::chrono::milliseconds(0)))) {
      throw Error(ErrorCode::kResourceExhausted, "too many calls wait for this engine");
    }
  }

  struct Call {
    std::function<void()> run;
    RpcReply reply;
  };

  void Work() {
    NameThisThread("lc-reload");
    while (std::optional<Call> call = calls_.Pop(Deadline::After(kForever))) {
      try {
        call->run();
      } catch (const Error& error) {
        call->reply.Failure(std::string(ErrorCodeName(error.code())), error.what());
      } catch (const Json::exception& error) {
        call->reply.Failure("invalid_argument", error.what());
      }
    }
  }

  void Status(const Json& /*params*/, const RpcReply& reply) {
    Json status = reloader_.Status();
    status.update(Identity());
    reply.Result(std::move(status));
  }

  // {"tokens": [...]} or {"prompts": [[...], ...]}, and "max_new", "temperature", "top_p", "top_k", "seed", "logprobs",
  // "stop_tokens". Sequence i of a batch has the seed `seed + i`.
  void Generate(const Json& params, const RpcReply& reply) {
    const bool single = params.contains("tokens");
    std::vector<std::vector<std::int32_t>> prompts;
    if (single) {
      prompts.push_back(params["tokens"].get<std::vector<std::int32_t>>());
    } else {
      prompts = params.at("prompts").get<std::vector<std::vector<std::int32_t>>>();
    }
    if (prompts.empty()) throw Error(ErrorCode::kInvalidArgument, "generate: expected a prompt, got none");
    std::vector<SequenceRequest> requests;
    for (std::vector<std::int32_t>& prompt : prompts) {
      SequenceRequest request;
      request.prompt = std::move(prompt);
      request.max_new = params.value("max_new", std::int64_t{16});
      request.temperature = params.value("temperature", 0.0);
      request.top_p = params.value("top_p", 1.0);
      request.top_k = params.value("top_k", std::int64_t{0});
      request.seed = params.value("seed", std::uint64_t{0}) + requests.size();
      request.stop_tokens = params.value("stop_tokens", std::vector<std::int32_t>());
      CheckRequest(request);
      requests.push_back(std::move(request));
    }
    // The second owners are the sequences' callbacks.
    auto batch = std::make_shared<Batch>(requests.size(), single, params.value("logprobs", false), reply);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      generator_.Add(std::move(requests[i]),
                     [batch, i](const Sequence& sequence, const char* finish) { batch->Done(i, sequence, finish); });
    }
  }

  void CheckRequest(const SequenceRequest& request) const {
    const auto refuse = [](const std::string& why) { throw Error(ErrorCode::kInvalidArgument, "generate: " + why); };
    if (request.prompt.empty()) refuse("a prompt without tokens");
    for (const std::int32_t token : request.prompt) {
      if (token >= 0 && token < config_.vocab_size) continue;
      refuse("token " + std::to_string(token) + ", expected 0 to " + std::to_string(config_.vocab_size - 1));
    }
    if (request.max_new < 1) refuse("max_new is " + std::to_string(request.max_new) + ", expected at least 1");
    const auto length = static_cast<std::int64_t>(request.prompt.size()) + request.max_new;
    if (length > config_.max_position_embeddings) {
      refuse(std::to_string(request.prompt.size()) + " tokens and " + std::to_string(request.max_new) +
             " new ones, the model has " + std::to_string(config_.max_position_embeddings) + " positions");
    }
    CheckSamplingParams(
        {.temperature = request.temperature, .top_p = request.top_p, .top_k = request.top_k, .seed = 0});
  }

  void ReloadWeights(const Json& params, const RpcReply& reply) { reply.Result(reloader_.Reload(params)); }

  void Pause(const Json& params, const RpcReply& reply) {
    const auto lease = std::chrono::milliseconds(params.value("lease_ms", 60'000));
    generator_.Pause(PauseModeNamed(params.value("mode", options_.pause_mode)), lease, Deadline::After(lease));
    reply.Result(Json::object());
  }

  void Resume(const Json& /*params*/, const RpcReply& reply) {
    generator_.Resume();
    reply.Result(Json::object());
  }

  // The calls that controllers know from elsewhere, and their words when misused.
  void InitWeightTransfer(const Json& /*params*/, const RpcReply& reply) { reply.Result(Identity()); }

  void StartUpdate(const Json& /*params*/, const RpcReply& reply) {
    if (updating_.exchange(true)) {
      throw Error(
          ErrorCode::kFailedPrecondition,
          "start_weight_update called while a weight update is already active. Call finish_weight_update first.");
    }
    reply.Result(Json::object());
  }

  void UpdateWeights(const Json& params, const RpcReply& reply) {
    if (!updating_)
      throw Error(ErrorCode::kFailedPrecondition, "start_weight_update must be called before update_weights.");
    ReloadWeights(params, reply);
  }

  void FinishUpdate(const Json& /*params*/, const RpcReply& reply) {
    if (!updating_.exchange(false)) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "finish_weight_update called without a matching start_weight_update.");
    }
    reply.Result({{"version", reloader_.Status()["version"]}});
  }

  void Export(const Json& params, const RpcReply& reply) {
    const std::filesystem::path directory = params.at("directory").get<std::string>();
    std::filesystem::create_directories(directory);
    const Version version = reloader_.version().value_or(Version{});
    const Json metadata = {{"lineage", version.lineage},
                           {"step", std::to_string(version.step)},
                           {"digest", version.digest.ToHex()},
                           {"quantization", options_.ranks.recipe},
                           {"tp_size", std::to_string(options_.ranks.tp_size)}};
    Json result = {{"files", Json::array()}, {"tensors", 0}, {"bytes", 0}, {"version", VersionToJson(version)}};
    for (const Json& rank : ranks_.Call("export", {{"directory", directory.string()}, {"metadata", metadata}},
                                        Deadline::After(kRankTimeout))) {
      for (const Json& file : rank["files"]) result["files"].push_back(file);
      result["tensors"] = result["tensors"].get<std::uint64_t>() + rank["tensors"].get<std::uint64_t>();
      result["bytes"] = result["bytes"].get<std::uint64_t>() + rank["bytes"].get<std::uint64_t>();
    }
    std::filesystem::copy_file(std::filesystem::path(options_.ranks.model) / "config.json", directory / "config.json",
                               std::filesystem::copy_options::overwrite_existing);
    reply.Result(std::move(result));
  }

  void Verify(const Json& params, const RpcReply& reply) {
    Json result = {{"equal", true}, {"tensors", 0}, {"bytes", 0}, {"differences", Json::array()}};
    for (const Json& rank :
         ranks_.Call("compare", {{"directory", params.at("directory")}}, Deadline::After(kRankTimeout))) {
      result["tensors"] = result["tensors"].get<std::uint64_t>() + rank["tensors"].get<std::uint64_t>();
      result["bytes"] = result["bytes"].get<std::uint64_t>() + rank["bytes"].get<std::uint64_t>();
      for (const Json& difference : rank["differences"]) result["differences"].push_back(difference);
    }
    result["equal"] = result["differences"].empty();
    reply.Result(std::move(result));
  }

  void Digests(const Json& /*params*/, const RpcReply& reply) {
    reply.Result({{"ranks", ranks_.Call("digests", Json::object(), Deadline::After(kRankTimeout))}});
  }

  const EngineServiceOptions options_;
  const ModelConfig config_;
  RankGroup ranks_;
  Generator generator_;
  Reloader reloader_;
  std::atomic<bool> updating_{false};
  BoundedQueue<Call> calls_{kQueuedCalls};
  std::thread worker_;
  std::unique_ptr<RpcServer> rpc_;
};

EngineService::EngineService(const EngineServiceOptions& options) : impl_(std::make_unique<Impl>(options)) {}
EngineService::~EngineService() = default;
std::string EngineService::endpoint() const { return impl_->endpoint(); }
Json EngineService::Ready() const { return impl_->Ready(); }

}  // namespace layercast
