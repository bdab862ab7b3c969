"""A task that a small policy learns in a minute: answer "4 =" with the same digit, three times."""

import torch

DIGITS, LENGTH = 10, 3
WORDS = [*map(str, range(DIGITS)), "=", "<pad>", "<eos>", "<unk>", "a", "b"]


def tokenizer():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def policy(seed=0):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(vocab_size=len(WORDS), hidden_size=64, intermediate_size=128, num_hidden_layers=2, head_dim=16,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                         initializer_range=0.08, tie_word_embeddings=False, bos_token_id=None,
                         eos_token_id=WORDS.index("<eos>"), pad_token_id=WORDS.index("<pad>"))
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(config)


def prompts(rows):
    return [{"prompt": f"{row % DIGITS} =", "digit": row % DIGITS} for row in range(rows)]


def reward(completion_ids, digit, **columns):
    """How much of the answer is right."""
    return [sum(token == wanted for token in ids[:LENGTH]) / LENGTH for ids, wanted in zip(completion_ids, digit)]
