#include "src/checkpoint/torch_save/pickle.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

using Kind = PickleNode::Kind;

constexpr std::string_view kOrderedDict = "collections.OrderedDict";
constexpr std::size_t kNewestProtocol = 5;
// Bytes: the limit that safetensors headers have too. A pickle takes at worst about thirty times its bytes in memory.
constexpr std::size_t kLargestPickle = 100'000'000;
constexpr std::uint32_t kNothing = 0xffffffff;  // no node

// The opcodes of Python's pickle.py that state dicts are made of.
enum Opcode : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kBinFloat = 'G',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

// The names of opcodes that deserve one when they are refused: they make objects of any class, or reach outside the
// file.
std::string_view NameOf(std::uint8_t opcode) {
  switch (opcode) {
    case 'i': return "INST ";
    case 'o': return "OBJ ";
    case 'P': return "PERSID ";
    case 0x81: return "NEWOBJ ";
    case 0x82: return "EXT1 ";
    case 0x83: return "EXT2 ";
    case 0x84: return "EXT4 ";
    case 0x92: return "NEWOBJ_EX ";
    case 0x97: return "NEXT_BUFFER ";
    default: return "";
  }
}

// The stack machine that a pickle is a program for, without anything that acts.
class Machine {
 public:
  Machine(std::span<const std::byte> bytes, std::span<const std::string_view> allowed, const std::string& subject)
      : bytes_(bytes), allowed_(allowed), subject_(subject), pickle_(bytes, allowed) {
    if (bytes.size() > kLargestPickle) {
      Fail("expected at most " + std::to_string(kLargestPickle) + " bytes, got " + std::to_string(bytes.size()));
    }
  }

  Pickle Run() {
    for (;;) {
      opcode_at_ = position_;
      const std::uint8_t opcode = Byte();
      if (opcode == kStop) break;
      if (!Value(opcode) && !Container(opcode) && !Memory(opcode) && !Call(opcode)) RefuseOpcode(opcode);
    }
    if (position_ != bytes_.size())
      Fail("expected the end, got " + std::to_string(bytes_.size() - position_) + " bytes more");
    if (!marks_.empty() || stack_.size() != 1) {
      Fail("expected one object at the end, got " + std::to_string(stack_.size()));
    }
    pickle_.root = stack_.front();
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void Fail(const std::string& what, ErrorCode code = ErrorCode::kCorrupt) const {
    throw Error(code, subject_ + ": at byte " + std::to_string(opcode_at_) + ": " + what);
  }

  [[noreturn]] void RefuseOpcode(std::uint8_t opcode) const {
    char hex[8];
    std::snprintf(hex, sizeof(hex), "0x%02x", opcode);
    Fail("the opcode " + std::string(NameOf(opcode)) + hex + " is none that a state dict needs: refused",
         ErrorCode::kUnsupported);
  }

  // The program's bytes.

  std::span<const std::byte> Take(std::uint64_t count) {
    if (count > bytes_.size() - position_) {
      Fail("expected " + std::to_string(count) + " bytes more, got " + std::to_string(bytes_.size() - position_));
    }
    const auto taken = bytes_.subspan(position_, static_cast<std::size_t>(count));
    position_ += taken.size();
    return taken;
  }

  std::uint8_t Byte() { return std::to_integer<std::uint8_t>(Take(1)[0]); }

  std::uint64_t Number(std::size_t width) {  // little-endian
    std::uint64_t number = 0;
    std::size_t shift = 0;
    for (const std::byte byte : Take(width)) number |= std::to_integer<std::uint64_t>(byte) << (8 * shift++);
    return number;
  }

  std::int64_t SignedNumber(std::size_t width) {
    if (width > 8) Fail("expected an integer of at most 8 bytes, got " + std::to_string(width));
    if (width == 0) return 0;
    const std::size_t unused = 64 - 8 * width;
    return static_cast<std::int64_t>(Number(width) << unused) >> unused;
  }

  std::string_view Text(std::uint64_t count) {
    const auto taken = Take(count);
    const std::string_view text(reinterpret_cast<const char*>(taken.data()), taken.size());
    if (FindInvalidUtf8(text)) Fail("expected text in UTF-8, got " + Quote(text));
    return text;
  }

  std::string_view Line() {
    const auto rest = bytes_.subspan(position_);
    const auto end = std::ranges::find(rest, std::byte{'\n'});
    if (end == rest.end()) Fail("expected a line, got no end of it");
    const std::string_view text = Text(static_cast<std::uint64_t>(end - rest.begin()));
    ++position_;
    return text;
  }

  // The stack.

  void PushNumber(Kind kind, std::int64_t number) { stack_.push_back(pickle_.AddNumber(kind, number, opcode_at_)); }
  void PushText(std::string_view text) {
    const auto begin = text.data() - reinterpret_cast<const char*>(bytes_.data());
    stack_.push_back(pickle_.AddText(static_cast<std::size_t>(begin), text.size(), opcode_at_));
  }
  void PushItems(Kind kind, std::span<const std::uint32_t> items) {
    stack_.push_back(pickle_.AddItems(kind, items, opcode_at_));
  }

  std::size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }

  void Need(std::size_t count) const {
    if (stack_.size() - Floor() < count) {
      Fail("expected " + std::to_string(count) + " objects on the stack, got " +
           std::to_string(stack_.size() - Floor()));
    }
  }

  std::vector<std::uint32_t> Pop(std::size_t count) {
    Need(count);
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    std::vector<std::uint32_t> popped(first, stack_.end());
    stack_.erase(first, stack_.end());
    return popped;
  }

  std::vector<std::uint32_t> PopToMark() {
    if (marks_.empty()) Fail("expected a mark on the stack, got none");
    std::vector<std::uint32_t> popped = Pop(stack_.size() - marks_.back());
    marks_.pop_back();
    return popped;
  }

  std::uint32_t Top(Kind kind, const char* what) const {
    Need(1);
    const std::uint32_t node = stack_.back();
    if (pickle_[node].kind != kind)
      Fail(std::string("expected ") + what + " on the stack, got " + Describe(pickle_, node));
    return node;
  }

  // The opcodes, in groups. Each of these functions carries out an opcode of its group, and returns false for others.

  bool Value(std::uint8_t opcode) {
    switch (opcode) {
      case kNone: return PushNumber(Kind::kNone, 0), true;
      case kNewTrue: return PushNumber(Kind::kBool, 1), true;
      case kNewFalse: return PushNumber(Kind::kBool, 0), true;
      case kBinInt: return PushNumber(Kind::kInt, SignedNumber(4)), true;
      case kBinInt1: return PushNumber(Kind::kInt, Byte()), true;
      case kBinInt2: return PushNumber(Kind::kInt, static_cast<std::int64_t>(Number(2))), true;
      case kLong1: return PushNumber(Kind::kInt, SignedNumber(Byte())), true;
      case kBinFloat: return Take(8), PushNumber(Kind::kFloat, 0), true;  // no tensor depends on its value
      case kBinUnicode: return PushText(Text(Number(4))), true;
      case kShortBinUnicode: return PushText(Text(Byte())), true;
      default: return false;
    }
  }

  bool Container(std::uint8_t opcode) {
    switch (opcode) {
      case kMark: return marks_.push_back(static_cast<std::uint32_t>(stack_.size())), true;
      case kEmptyTuple: return PushItems(Kind::kTuple, {}), true;
      case kTuple1: return PushItems(Kind::kTuple, Pop(1)), true;
      case kTuple2: return PushItems(Kind::kTuple, Pop(2)), true;
      case kTuple3: return PushItems(Kind::kTuple, Pop(3)), true;
      case kTuple: return PushItems(Kind::kTuple, PopToMark()), true;
      case kEmptyList: return PushItems(Kind::kList, {}), true;
      case kAppend: return Extend(Kind::kList, Pop(1)), true;
      case kAppends: return Extend(Kind::kList, PopToMark()), true;
      case kEmptyDict: return PushItems(Kind::kDict, {}), true;
      case kSetItem: return Extend(Kind::kDict, Pop(2)), true;
      case kSetItems: return Extend(Kind::kDict, PopToMark()), true;
      default: return false;
    }
  }

  void Extend(Kind kind, const std::vector<std::uint32_t>& items) {
    const std::uint32_t node = Top(kind, kind == Kind::kDict ? "a dict" : "a list");
    if (kind == Kind::kDict && items.size() % 2 != 0) Fail("expected keys and values, got an odd number of objects");
    pickle_.Extend(node, items);
  }

  bool Memory(std::uint8_t opcode) {
    switch (opcode) {
      case kBinPut: return Remember(Byte()), true;
      case kLongBinPut: return Remember(Number(4)), true;
      case kMemoize: return Remember(remembered_), true;
      case kBinGet: return Recall(Byte()), true;
      case kLongBinGet: return Recall(Number(4)), true;
      default: return false;
    }
  }

  // Picklers number their keys, so each is smaller than the pickle's size. Without that bound a few bytes could ask for
  // a table of gigabytes.
  void Remember(std::uint64_t key) {
    Need(1);
    if (key >= bytes_.size()) {
      Fail("expected a key of the memo below the pickle's " + std::to_string(bytes_.size()) + " bytes, got " +
           std::to_string(key));
    }
    if (key >= memo_.size()) memo_.resize(static_cast<std::size_t>(key) + 1, kNothing);
    std::uint32_t& node = memo_[static_cast<std::size_t>(key)];
    if (node == kNothing) ++remembered_;
    node = stack_.back();
  }

  void Recall(std::uint64_t key) {
    if (key >= memo_.size() || memo_[static_cast<std::size_t>(key)] == kNothing) {
      Fail("expected an object in the memo at " + std::to_string(key) + ", got none");
    }
    stack_.push_back(memo_[static_cast<std::size_t>(key)]);
  }

  bool Call(std::uint8_t opcode) {
    switch (opcode) {
      case kProto: return CheckProtocol(Byte()), true;
      case kFrame: return Number(8), true;  // only says how much may be read ahead
      case kGlobal: return Global(), true;
      case kStackGlobal: return StackGlobal(), true;
      case kReduce: return Reduce(), true;
      case kBuild: return Pop(1), Top(Kind::kDict, "a dict"), true;
      case kBinPersId: return PushItems(Kind::kPersistent, Pop(1)), true;
      default: return false;
    }
  }

  void CheckProtocol(std::uint8_t protocol) const {
    if (protocol >= 2 && protocol <= kNewestProtocol) return;
    Fail("expected a pickle of protocol 2 to 5, got " + std::to_string(protocol));
  }

  void Global() {
    const std::string_view module = Line();
    PushGlobal(module, Line());
  }

  void StackGlobal() {
    const std::string_view name = pickle_.TextOf(Top(Kind::kText, "a name"));
    Pop(1);
    const std::string_view module = pickle_.TextOf(Top(Kind::kText, "a module's name"));
    Pop(1);
    PushGlobal(module, name);
  }

  void PushGlobal(std::string_view module, std::string_view name) {
    const std::string whole = std::string(module) + "." + std::string(name);
    const auto found = std::ranges::find(allowed_, whole);
    if (found == allowed_.end()) {
      Fail("the global " + Quote(whole) + " is none that a state dict needs: refused", ErrorCode::kUnsupported);
    }
    stack_.push_back(pickle_.AddGlobal(static_cast<std::size_t>(found - allowed_.begin()), opcode_at_));
  }

  void Reduce() {
    const std::vector<std::uint32_t> call = Pop(2);
    if (pickle_[call[0]].kind != Kind::kGlobal) Fail("expected a global to call, got " + Describe(pickle_, call[0]));
    if (pickle_[call[1]].kind != Kind::kTuple) Fail("expected a tuple of arguments, got " + Describe(pickle_, call[1]));
    if (pickle_.TextOf(call[0]) != kOrderedDict) return PushItems(Kind::kCall, call);
    const std::size_t arguments = pickle_.ItemsOf(call[1]).size();
    if (arguments != 0) Fail("OrderedDict: expected no arguments, got " + std::to_string(arguments));
    PushItems(Kind::kDict, {});
  }

  const std::span<const std::byte> bytes_;
  const std::span<const std::string_view> allowed_;
  const std::string& subject_;
  std::size_t position_ = 0;
  std::size_t opcode_at_ = 0;
  Pickle pickle_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::uint32_t> marks_;  // heights of the stack
  std::vector<std::uint32_t> memo_;   // nodes by their keys, kNothing where there is none
  std::size_t remembered_ = 0;        // how many keys of memo_ have a node
};

}  // namespace

Pickle ReadPickle(std::span<const std::byte> bytes, std::span<const std::string_view> allowed,
                  const std::string& subject) {
  return Machine(bytes, allowed, subject).Run();
}

}  // namespace layercast
