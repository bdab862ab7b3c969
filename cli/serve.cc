// layercast serve: an engine, all its ranks, and its service, until it is ended.
#include <unistd.h>

#include <filesystem>
#include <future>
#include <memory>
#include <string>

#include "cli/arguments.h"
#include "cli/end_signal.h"
#include "cli/subcommand.h"
#include "engine_side/quant/recipe.h"
#include "engine_side/server/engine_service.h"
#include "src/base/thread_name.h"
#include "src/base/wake_up.h"

namespace layercast::cli {
namespace {

// Unlike any other engine's: publishers tell engines apart by it.
std::string EngineName() {
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::string(host) + ":" + std::to_string(::getpid()) + ":" +
         std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

class Serve final : public Subcommand {
 public:
  const char* name() const override { return "serve"; }
  const char* description() const override {
    return "An engine with all its ranks, which takes new weights as it runs";
  }

  void Declare(CLI::App& app) override {
    app.add_option("--model", options_.ranks.model, "A checkpoint folder, or one that `export` wrote")->required();
    app.add_option("--tp", options_.ranks.tp_size, "Ranks")->check(CLI::Range(1, 64))->capture_default_str();
    app.add_option("--quantization", options_.ranks.recipe, "The recipe of what is served")
        ->check(CLI::IsMember(KnownRecipes()))
        ->capture_default_str();
    app.add_flag("--power-of-two-scales", options_.ranks.power_of_two_scales,
                 "fp8_per_block: scales rounded up to powers of two");
    app.add_flag("--requantize", options_.ranks.requantize,
                 "Layers of a quantized checkpoint that cannot be served as they are: dequantize, and quantize anew");
    app.add_option("--commit", commit_, "How a version is put in place")
        ->check(CLI::IsMember({"staged", "undo", "in_place"}))
        ->capture_default_str();
    app.add_option("--device", device_, "Where it computes")
        ->check(CLI::IsMember({"cpu", "cuda"}))
        ->capture_default_str();
    app.add_option("--bind", options_.endpoint, "Where it is called; port 0 picks one")->capture_default_str();
    app.add_flag("--allow-remote", options_.allow_remote, "Bind beyond loopback: there is no authentication");
    app.add_option("--chunk-bytes", options_.ranks.chunk_bytes, "The most that a rank asks a publisher for at once")
        ->check(CLI::Range(4096, 1 << 30))
        ->capture_default_str();
    app.add_option("--pause-mode", options_.pause_mode, "What a commit does to sequences under way")
        ->check(CLI::IsMember({"wait", "abort", "keep"}))
        ->capture_default_str();
  }

  void Run(Output& output) override {
    if (commit_ != "staged") {
      throw Error(ErrorCode::kUnsupported, "--commit " + commit_ + " is not offered yet: 'staged' is what there is");
    }
    if (device_ != "cpu") {
      throw Error(ErrorCode::kUnsupported,
                  "--device " + device_ + " is not offered yet: the built-in engine computes on the CPU");
    }
    options_.ranks.program = RankProgram();
    options_.ranks.engine = EngineName();
    EndSignal end;
    EngineService service(options_);
    if (!LoadUnlessEnded(service, end)) return;
    const Json ready = service.Ready();
    output.Print(ready, "serving " + VersionText(ready.at("version")) + " at " + service.endpoint() + " with " +
                            ready.at("tp").dump() + " ranks, quantization " + options_.ranks.recipe);
    end.Wait();
  }

 private:
  // A model takes its time to load: who ends the program meanwhile need not wait for it. False: it was ended.
  static bool LoadUnlessEnded(EngineService& service, EndSignal& end) {
    WakeUp loaded;
    std::future<void> loading = std::async(std::launch::async, [&] {
      NameThisThread("lc-load");
      const WakeUp::RingAtExit ring(loaded);
      service.LoadModel();
    });
    const bool ended = end.WaitOr(loaded);
    if (ended) service.End();
    try {
      loading.get();
    } catch (const Error&) {
      if (!ended) throw;
    }
    return !ended;
  }

  // Beside this program: `layercast-rank` is the one that holds libtorch.
  static std::string RankProgram() {
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
    const std::filesystem::path rank = self.parent_path() / "layercast-rank";
    if (std::filesystem::exists(rank)) return rank.string();
    throw Error(ErrorCode::kUnsupported,
                "this build has no engine: it was made without libtorch (expected " + rank.string() + ")");
  }

  EngineServiceOptions options_;
  std::string commit_ = "staged";
  std::string device_ = "cpu";
};

}  // namespace

std::unique_ptr<Subcommand> MakeServe() { return std::make_unique<Serve>(); }

}  // namespace layercast::cli
