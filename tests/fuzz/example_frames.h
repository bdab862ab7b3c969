// Messages of the control link to begin damage with: of each kind at least one, with something in every list.
// Header-only.
#pragma once

#include <cstddef>
#include <vector>

#include "src/wire/frames.h"

namespace layercast::testing {

inline std::vector<wire::Message> ExampleMessages() {
  const std::vector<std::byte> bytes(9, std::byte{7});
  const wire::Host host{"boot", "net", "0", "17@4026"};
  return {
      wire::Hello{.engine = "engine-0", .attempt = 3, .rank = 1, .ranks = 4, .host = host, .lineage = "run"},
      wire::Hello{.engine = "e", .host = host, .lineage = "run", .step_known = true, .step = 1},
      wire::Hello{.engine = "e", .host = host, .lineage = "", .step_known = true, .step = 1, .digest = {1, 2}},
      wire::Welcome{.publisher = "trainer",
                    .host = host,
                    .run = "job-7",
                    .stream = true,
                    .channels = {{"shm", "@x"}, {"zmq", "tcp://127.0.0.1:1"}},
                    .manifest = bytes,
                    .cost = {8, 9},
                    .config = bytes},
      wire::Subscribe{{1, 2}, bytes, {{3, 0b011, 4}, {5, 0b101, 6, {2, 3, 4}}}, true, "tcp://127.0.0.1:5", 6},
      wire::NeedSchedule{},
      wire::Subscribed{11, {{1, 2}, {3, 4}}, {{5, {1.5F, 2.5F}}, {6, {}}}},
      wire::TensorsReady{{{1, 2, 3, 10, 4.5F, {5, 6}, {7.5F}, {{8, 9}}}, {11, 12, 13, 14, 5.5F, {1, 2}, {}, {}}}},
      wire::TensorDone{9},
      wire::StreamEnd{2, {3, 4}},
      wire::Ping{},
      wire::Pong{},
      wire::Bye{},
      wire::Refused{ErrorCode::kCorrupt, "why"},
      wire::StatusRequest{},
      wire::StatusAnswer{
          1, {{"run", 42, {1, 2}, true, 3, 4, 5, 6, 7, "job-7", {{"engine-0", 1, "tcp://a:1", "tcp://b:2", 3, 4}}}}},
      wire::MoreDigests{{{1, 2}, {3, 4}}, {{5, {1.5F}}}},
      wire::FetchFrom{"tcp://127.0.0.1:5", 6},
      wire::RelayLost{"tcp://127.0.0.1:5", 6, "silent"},
      wire::ChunksReady{7},
      wire::Progress{1, 2, 3, 4},
      wire::CostRequest{},
      wire::ServingCost{1234},
      wire::VersionsRequest{},
      wire::VersionsAnswer{3, 4, 5, {{"run", 42, {1, 2}, "job-7", true, 6, 7, 8, 9, true, true, true}}},
      wire::PinVersion{"run", 42, {1, 2}, true},
      wire::EvictVersion{"run", 42, {1, 2}},
      wire::PublishFolder{"/a/b", "auto", "run", 42, "job-7"},
      wire::PublishedFolder{"run", 42, {1, 2}, 3, 4},
  };
}

}  // namespace layercast::testing
