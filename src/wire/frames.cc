#include "src/wire/frames.h"

#include <array>
#include <bit>
#include <utility>

#include "src/base/bytes/bytes.h"
#include "src/base/check.h"

namespace layercast::wire {
namespace {

constexpr std::uint32_t kMagic = 0x4657434C;  // "LCWF"

constexpr std::array<std::string_view, std::variant_size_v<Message>> kNames = {
    "hello",        "welcome",    "subscribe",  "need_schedule", "subscribed", "tensor_ready", "tensor_done",
    "stream_end",   "ping",       "pong",       "bye",           "refused",    "status",       "status_answer",
    "more_digests", "fetch_from", "relay_lost", "chunks_ready",  "progress",   "cost_request", "serving_cost"};

// Writing and reading are one description: `Fields(archive, message)` visits a message's fields in wire order, and the
// archive is a Writer or a Reader. So the two cannot differ.

class Writer {
 public:
  template <typename T>
  void Number(T& value, std::string_view /*field*/) {
    out_.Put(value);
  }
  void Float(float& value, std::string_view /*field*/) { out_.Put(std::bit_cast<std::uint32_t>(value)); }
  void Flag(bool& value, std::string_view /*field*/) { out_.Put(static_cast<std::uint8_t>(value ? 1 : 0)); }
  void Text(std::string& value, std::string_view field) {
    if (value.size() > 0xFFFF) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "message: " + std::string(field) + ": expected at most 65535 bytes, got " + std::to_string(value.size()));
    }
    out_.Put(static_cast<std::uint16_t>(value.size()));
    out_.PutBytes(value);
  }
  void Bytes(std::vector<std::byte>& value, std::string_view /*field*/, std::size_t most = kMaxFrameBytes) {
    LAYERCAST_CHECK(value.size() <= most);
    out_.Put(static_cast<std::uint32_t>(value.size()));
    out_.PutBytes(std::span<const std::byte>(value));
  }
  template <typename Count, typename T, typename Visit>
  void List(std::vector<T>& items, std::size_t /*least_bytes*/, std::string_view /*field*/, Visit visit) {
    out_.Put(static_cast<Count>(items.size()));
    for (T& item : items) visit(item);
  }
  std::vector<std::byte> Take() && { return std::move(out_).Take(); }

 private:
  ByteWriter out_;
};

class Reader {
 public:
  Reader(std::string subject, std::span<const std::byte> bytes) : in_(std::move(subject), bytes) {}

  template <typename T>
  void Number(T& value, std::string_view field) {
    value = in_.Get<T>(field);
  }
  void Float(float& value, std::string_view field) { value = std::bit_cast<float>(in_.Get<std::uint32_t>(field)); }
  void Flag(bool& value, std::string_view field) {
    const auto byte = in_.Get<std::uint8_t>(field);
    if (byte > 1) in_.Fail(std::string(field) + ": expected 0 or 1, got " + std::to_string(byte));
    value = byte == 1;
  }
  void Text(std::string& value, std::string_view field) { value = in_.GetText(in_.Get<std::uint16_t>(field), field); }
  void Bytes(std::vector<std::byte>& value, std::string_view field, std::size_t most = kMaxFrameBytes) {
    const auto size = in_.Get<std::uint32_t>(field);
    if (size > most) {
      in_.Fail(std::string(field) + ": expected at most " + std::to_string(most) + " bytes, got " +
               std::to_string(size));
    }
    const auto bytes = in_.GetBytes(size, field);
    value.assign(bytes.begin(), bytes.end());
  }
  // `least_bytes` is the size of the smallest possible item. A count of items that the rest of the frame cannot hold is
  // refused before anything is allocated.
  template <typename Count, typename T, typename Visit>
  void List(std::vector<T>& items, std::size_t least_bytes, std::string_view field, Visit visit) {
    const std::size_t count = in_.Get<Count>(field);
    if (count > in_.remaining() / least_bytes) {
      in_.Fail(std::string(field) + ": " + std::to_string(count) + " of them do not fit in the " +
               std::to_string(in_.remaining()) + " bytes that are left");
    }
    items.resize(count);
    for (T& item : items) visit(item);
  }
  ByteReader& in() { return in_; }

 private:
  ByteReader in_;
};

template <typename Archive>
void OneDigest(Archive& archive, Digest& digest) {
  archive.Number(digest.high, "digest");
  archive.Number(digest.low, "digest");
}

template <typename Archive>
void Digests(Archive& archive, std::vector<Digest>& digests) {
  archive.template List<std::uint32_t>(digests, 16, "chunk digests",
                                       [&](Digest& digest) { OneDigest(archive, digest); });
}

template <typename Archive>
void Floats(Archive& archive, std::vector<float>& values) {
  archive.template List<std::uint32_t>(values, 4, "amax", [&](float& value) { archive.Float(value, "amax"); });
}

template <typename Archive>
void Amaxes(Archive& archive, std::vector<AxisAmax>& amaxes) {
  archive.template List<std::uint32_t>(amaxes, 8, "amaxes", [&](AxisAmax& amax) {
    archive.Number(amax.tensor, "tensor");
    Floats(archive, amax.values);
  });
}

template <typename Archive>
void OneHost(Archive& archive, Host& host) {
  archive.Text(host.boot_id, "boot id");
  archive.Text(host.network, "network namespace");
  archive.Text(host.user, "user");
  archive.Text(host.process, "process");
}

template <typename Archive>
void Fields(Archive& archive, Hello& hello) {
  archive.Number(hello.oldest_protocol, "oldest protocol");
  archive.Number(hello.newest_protocol, "newest protocol");
  archive.Text(hello.engine, "engine");
  archive.Number(hello.attempt, "attempt");
  archive.Number(hello.rank, "rank");
  archive.Number(hello.ranks, "ranks");
  OneHost(archive, hello.host);
  archive.Text(hello.lineage, "lineage");
  archive.Flag(hello.step_known, "step known");
  archive.Number(hello.step, "step");
}

template <typename Archive>
void Cost(Archive& archive, TrainerCost& cost) {
  archive.Number(cost.held_up_us, "time held up");
  archive.Number(cost.core_us, "core time");
}

template <typename Archive>
void Fields(Archive& archive, Welcome& welcome) {
  archive.Number(welcome.protocol, "protocol");
  archive.Text(welcome.publisher, "publisher");
  OneHost(archive, welcome.host);
  archive.Text(welcome.run, "run");
  archive.Flag(welcome.stream, "mode");
  archive.template List<std::uint16_t>(welcome.channels, 4, "channels", [&](ChannelAddress& channel) {
    archive.Text(channel.name, "channel name");
    archive.Text(channel.address, "channel address");
  });
  archive.Bytes(welcome.manifest, "manifest");
  Cost(archive, welcome.cost);
  archive.Bytes(welcome.config, "config", kMaxConfigBytes);
}

// Accepts any number, even a negative one: the publisher, which knows the tensor, refuses what cannot be its dimension.
template <typename Archive>
void Dimension(Archive& archive, std::int64_t& extent) {
  auto number = static_cast<std::uint64_t>(extent);
  archive.Number(number, "dimension");
  extent = static_cast<std::int64_t>(number);
}

template <typename Archive>
void Fields(Archive& archive, Subscribe& subscribe) {
  OneDigest(archive, subscribe.schedule_digest);
  archive.Bytes(subscribe.schedule, "schedule");
  archive.template List<std::uint32_t>(subscribe.amax_requests, 10, "amax requests", [&](AmaxRequest& ask) {
    archive.Number(ask.tensor, "tensor");
    archive.Number(ask.kept, "kept axes");
    archive.Number(ask.before_chunk, "chunk");
    archive.template List<std::uint8_t>(ask.read_as, 8, "dimensions",
                                        [&](std::int64_t& extent) { Dimension(archive, extent); });
  });
  archive.Flag(subscribe.takes_relays, "takes relays");
  archive.Text(subscribe.relay_endpoint, "relay's endpoint");
  archive.Number(subscribe.relay_offer, "relay's offer");
}

template <typename Archive>
void Fields(Archive& archive, Subscribed& subscribed) {
  archive.Number(subscribed.offer_id, "offer");
  Digests(archive, subscribed.chunk_digests);
  Amaxes(archive, subscribed.amax);
}

template <typename Archive>
void Fields(Archive& archive, TensorReady& ready) {
  archive.Number(ready.sequence, "sequence");
  archive.Number(ready.tensor, "tensor");
  archive.Number(ready.offer_id, "offer");
  archive.Float(ready.amax, "amax");
  OneDigest(archive, ready.digest);
  Floats(archive, ready.axis_amax);
  Digests(archive, ready.chunk_digests);
}

template <typename Archive>
void Fields(Archive& archive, TensorDone& done) {
  archive.Number(done.sequence, "sequence");
}

template <typename Archive>
void Fields(Archive& archive, StreamEnd& end) {
  archive.Number(end.tensors, "tensors");
  Cost(archive, end.cost);
}

template <typename Archive>
void Fields(Archive& archive, Refused& refused) {
  auto code = static_cast<std::uint8_t>(refused.code);
  archive.Number(code, "code");
  // A code that only a later protocol knows is read as kInternal, since the message is a refusal all the same.
  refused.code =
      code <= static_cast<std::uint8_t>(ErrorCode::kInternal) ? static_cast<ErrorCode>(code) : ErrorCode::kInternal;
  std::vector<std::byte> message;
  for (const char c : refused.message) message.push_back(static_cast<std::byte>(c));
  archive.Bytes(message, "message");
  refused.message.assign(reinterpret_cast<const char*>(message.data()), message.size());
}

template <typename Archive>
void Readers(Archive& archive, std::vector<ReaderStatus>& readers) {
  archive.template List<std::uint32_t>(readers, 26, "receivers", [&](ReaderStatus& reader) {
    archive.Text(reader.engine, "engine");
    archive.Number(reader.rank, "rank");
    archive.Text(reader.takes_from, "relay that it takes from");
    archive.Text(reader.relays_at, "relay's endpoint");
    archive.Number(reader.bytes, "bytes");
    archive.Number(reader.bytes_per_second, "bytes per second");
  });
}

template <typename Archive>
void Fields(Archive& archive, StatusAnswer& status) {
  archive.Number(status.process, "process");
  archive.template List<std::uint32_t>(status.versions, 57, "versions", [&](VersionStatus& version) {
    archive.Text(version.lineage, "lineage");
    archive.Number(version.step, "step");
    OneDigest(archive, version.digest);
    archive.Flag(version.stream, "mode");
    archive.Number(version.tensors, "tensors");
    archive.Number(version.bytes, "bytes");
    archive.Number(version.readers, "readers");
    archive.Number(version.part_rank, "part's rank");
    archive.Number(version.part_ranks, "ranks");
    archive.Text(version.run, "run");
    Readers(archive, version.receivers);
  });
}

template <typename Archive>
void Fields(Archive& archive, MoreDigests& more) {
  Digests(archive, more.chunk_digests);
  Amaxes(archive, more.amax);
}

template <typename Archive>
void Fields(Archive& archive, FetchFrom& from) {
  archive.Text(from.relay, "relay's endpoint");
  archive.Number(from.offer, "relay's offer");
}

template <typename Archive>
void Fields(Archive& archive, RelayLost& lost) {
  archive.Text(lost.relay, "relay's endpoint");
  archive.Number(lost.offer, "relay's offer");
  archive.Text(lost.why, "why");
}

template <typename Archive>
void Fields(Archive& archive, ChunksReady& ready) {
  archive.Number(ready.chunks, "chunks");
}

template <typename Archive>
void Fields(Archive& archive, Progress& progress) {
  archive.Number(progress.bytes, "bytes");
  archive.Number(progress.elapsed_us, "elapsed");
  archive.Number(progress.waited_us, "waited");
  archive.Number(progress.bytes_per_second, "bytes per second");
}

template <typename Archive>
void Fields(Archive& archive, ServingCost& cost) {
  archive.Number(cost.core_us, "core time");
}

template <typename Archive, typename Empty>
void Fields(Archive& /*archive*/, Empty& /*message*/) {
  static_assert(std::is_empty_v<Empty>);
}

// The message of variant index `index`, default-constructed.
template <std::size_t... I>
Message MakeMessage(std::size_t index, std::index_sequence<I...> /*all*/) {
  Message message;
  ((index == I ? void(message.emplace<I>()) : void()), ...);
  return message;
}

}  // namespace

std::string_view MessageName(const Message& message) { return kNames[message.index()]; }

// Takes a copy of the frame because archives visit mutable fields; a Writer does not change them.
std::vector<std::byte> Encode(Frame frame) {
  Writer writer;
  std::uint32_t magic = kMagic;
  auto type = static_cast<std::uint16_t>(frame.message.index() + 1);
  writer.Number(magic, "magic");
  writer.Number(frame.protocol, "protocol");
  writer.Number(type, "type");
  writer.Number(frame.session, "session");
  std::visit([&](auto& message) { Fields(writer, message); }, frame.message);
  return std::move(writer).Take();
}

Frame Decode(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxFrameBytes) {
    throw Error(ErrorCode::kCorrupt, "frame of " + std::to_string(bytes.size()) + " bytes, expected at most " +
                                         std::to_string(kMaxFrameBytes));
  }
  Frame frame;
  Reader header("frame", bytes);
  std::uint32_t magic = 0;
  std::uint16_t type = 0;
  header.Number(magic, "magic");
  if (magic != kMagic)
    header.in().Fail(
        "expected the magic of a Layercast frame; what sent this is no publisher and no receiver (an engine?)");
  header.Number(frame.protocol, "protocol");
  header.Number(type, "type");
  header.Number(frame.session, "session");
  if (type == 0 || type > kNames.size()) header.in().Fail("unknown message type " + std::to_string(type));

  Reader body("message '" + std::string(kNames[type - 1U]) + "'", bytes.subspan(header.in().position()));
  frame.message = MakeMessage(type - 1U, std::make_index_sequence<std::variant_size_v<Message>>());
  std::visit([&](auto& message) { Fields(body, message); }, frame.message);
  body.in().ExpectEnd();
  return frame;
}

}  // namespace layercast::wire
