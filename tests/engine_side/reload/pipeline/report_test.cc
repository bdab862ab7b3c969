#include "layercast/report.h"

#include <gtest/gtest.h>

namespace layercast {
namespace {

// Every field is away from its default.
ReloadReport Full() {
  ReloadReport report;
  report.version = {"run-17", 42, {1, 2}};
  report.channel = "shm,zmq";
  report.gb_per_s = 1.5;
  report.probed_gb_per_s = 2.5;
  report.channel_lane = "tcp/eth0";
  report.channel_reason = "same host";
  report.channel_warning = "slow \"disk\"";
  report.run_warning = "no publisher names its run";
  report.bytes = 3;
  report.bytes_total = 4;
  report.layers = 5;
  report.layers_kept = 6;
  report.peak_buffered_bytes = 7;
  report.staged_bytes = 8;
  report.publishers = {{"tcp://t:1", "shm", 9, 10, {"tcp://r:2", "tcp://r:3"}, 0.25, 0.5, 0.75}};
  report.kept = {"model.layers.0-3,7.mlp.down_proj"};
  report.config_compared = true;
  report.config_changes = {"rope_theta: expected 1000000.0, got 10000.0"};
  report.out_of_order = {{"Allocating", {"model.layers.0", "model.layers.1"}, {"model.norm.weight"}}};
  report.cast = {{"model.norm.weight", DType::kF32, DType::kBF16}};
  report.skipped = {{"inv_freq", "computed, not loaded"}};
  report.unused_rules = {"^lm_head"};
  report.elsewhere = 11;
  for (const char* stage : kReloadStages) report.stage_ms[stage] = static_cast<double>(report.stage_ms.size()) + 0.5;
  report.total_ms = 12.25;
  report.delta = DeltaChoice{.taken = true,
                             .why = "less time",
                             .base = {"run-17", 41, {7, 8}},
                             .dense_bytes = 12,
                             .encoded_bytes = 13,
                             .estimated_dense_ms = 14.5,
                             .estimated_delta_ms = 15.5,
                             .took_ms = 16.5};
  report.served_digest = {3, 4};
  report.buffers_digest = {5, 6};
  report.noise = Noise{.sigma = 0.5F, .seed = 21, .own = 22};
  return report;
}

TEST(ReloadReport, HasItsExactJson) {
  EXPECT_EQ(Full().ToJson(),
            R"({"version":{"lineage":"run-17","step":42,"digest":"00000000000000010000000000000002"},)"
            R"("channel":{"name":"shm,zmq","gb_per_s":1.5,"probed_gb_per_s":2.5,"lane":"tcp/eth0",)"
            R"("reason":"same host","warning":"slow \"disk\""},"run_warning":"no publisher names its run",)"
            R"("bytes":3,"bytes_total":4,"layers":5,"layers_kept":6,"kept":["model.layers.0-3,7.mlp.down_proj"],)"
            R"("peak_buffered_bytes":7,"staged_bytes":8,"publishers":[{"endpoint":"tcp://t:1","channel":"shm",)"
            R"("bytes":9,"relayed_bytes":10,"relays":["tcp://r:2","tcp://r:3"],"held_up_ms":250.0,"core_ms":500.0,)"
            R"("serving_core_ms":750.0}],"delta":{"taken":true,"why":"less time","base":{"lineage":"run-17","step":41,)"
            R"("digest":"00000000000000070000000000000008"},"dense_bytes":12,"encoded_bytes":13,)"
            R"("estimated_dense_ms":14.5,"estimated_delta_ms":15.5,"took_ms":16.5},"config_compared":true,)"
            R"("config_changes":["rope_theta: expected 1000000.0, got 10000.0"],)"
            R"("out_of_order":[{"warning":"Allocating","layers":["model.layers.0","model.layers.1"],)"
            R"("awaited":["model.norm.weight"]}],"cast":[{"name":"model.norm.weight","from":"f32","to":"bf16"}],)"
            R"("skipped":[{"name":"inv_freq","rule":"computed, not loaded"}],"unused_rules":["^lm_head"],)"
            R"("elsewhere":11,"noise":{"sigma":0.5,"seed":21,"own":22},)"
            R"("stage_ms":{"commit":7.5,"connect":0.5,"fuse_and_shard":5.5,"layer_buffer":3.5,)"
            R"("materialize":4.5,"plan":1.5,"quantize":6.5,"receive":2.5,"verify":8.5},"total_ms":12.25,)"
            R"("served_digest":"00000000000000030000000000000004",)"
            R"("buffers_digest":"00000000000000050000000000000006"})");
  EXPECT_EQ(
      ReloadReport().ToJson(),
      R"({"version":{"lineage":"","step":0,"digest":"00000000000000000000000000000000"},)"
      R"("channel":{"name":"path","gb_per_s":0.0,"probed_gb_per_s":0.0,"lane":"","reason":"","warning":null},)"
      R"("run_warning":null,"bytes":0,"bytes_total":0,"layers":0,"layers_kept":0,"kept":[],)"
      R"("peak_buffered_bytes":0,"staged_bytes":0,"publishers":[],"delta":null,"config_compared":false,)"
      R"("config_changes":[],"out_of_order":[],"cast":[],"skipped":[],"unused_rules":[],"elsewhere":0,"noise":null,)"
      R"("stage_ms":{},"total_ms":0.0,"served_digest":"00000000000000000000000000000000",)"
      R"("buffers_digest":"00000000000000000000000000000000"})");
}

}  // namespace
}  // namespace layercast
