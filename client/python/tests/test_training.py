"""Training with a head on the server: the example of docs/training.md, and a small GPT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import Kevald
from test_documentation import run_blocks

import keval

torch = pytest.importorskip("torch", reason="torch is not installed")

import keval.torch  # noqa: E402

torch.set_num_threads(1)  # Small operators on busy cores: threads would wait for each other.

VOCAB, WIDTH, LENGTH, BATCH, STEPS = 23, 16, 12, 8, 200


class Block(torch.nn.Module):
    """One layer of a transformer over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCAB, WIDTH)
        self.places = torch.nn.Embedding(LENGTH, WIDTH)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(3))
        self.attention = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )
        self.head = torch.nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens: Any) -> Any:
        """What the head takes."""
        x = self.tokens(tokens) + self.places.weight
        query, key, value = self.attention(self.norms[0](x)).chunk(3, -1)
        x = x + torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.norms[2](x + self.mlp(self.norms[1](x)))


def batch(step: int) -> tuple[Any, Any]:
    """Sequences whose next token follows from the one before, but for a tenth of them."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(VOCAB, (BATCH, LENGTH + 1), generator=generator)
    strays = torch.rand(tokens.shape, generator=generator) < 0.1
    for i in range(1, LENGTH + 1):
        tokens[:, i] = torch.where(strays[:, i], tokens[:, i], (5 * tokens[:, i - 1] + 3) % VOCAB)
    return tokens[:, :-1], tokens[:, 1:]


def train(logp_of: Callable[[Block, Any, Any], Any], model: Block) -> list[float]:
    """The loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(STEPS):
        tokens, targets = batch(step)
        loss = -logp_of(model, model(tokens), targets).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def local_logp(model: Block, hidden: Any, targets: Any) -> Any:
    return model.head(hidden).log_softmax(-1).gather(-1, targets[..., None])[..., 0]


def new_model() -> Block:
    torch.manual_seed(1)
    return Block()


def test_a_small_gpt_learns_as_with_a_local_head(client: keval.Client) -> None:
    local = train(local_logp, new_model())
    model = new_model()
    with keval.torch.RemoteHead(client, model.head.weight, model.head.bias) as head:
        remote = train(lambda _, hidden, targets: keval.torch.linear_logp(hidden, head, targets), model)
    assert remote[-1] < 0.3 * remote[0]
    # Each step's loss. float32 against float64, both here, differ by 2e-6: that is how rounding grows over these steps.
    assert max(abs(one - other) for one, other in zip(local, remote, strict=True)) < 1e-5


def test_the_page(server: Kevald, capsys: pytest.CaptureFixture[str]) -> None:
    """Its GRPO step has the gradients of the same loss without a server."""
    namespace = run_blocks("docs/training.md", server, blocks=4, addresses=1)
    found = {name: parameter.grad for name, parameter in namespace["policy"].named_parameters()}
    policy, advantages = namespace["policy"], namespace["advantages"]
    policy.zero_grad()

    def logp_of(hidden: Any, weight: Any) -> Any:
        logits = torch.nn.functional.linear(hidden, weight)
        return logits.log_softmax(-1).gather(-1, namespace["answers"][..., None])[..., 0]

    reference = logp_of(namespace["reference"](namespace["prompts"]), namespace["reference"].lm_head.weight).detach()
    loss = namespace["grpo_loss"](
        logp_of(policy(namespace["prompts"]), policy.lm_head.weight), namespace["old_logp"], reference, advantages
    )
    loss.backward()
    for name, parameter in policy.named_parameters():
        # Sums of at most 64 terms in float32.
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)
    assert capsys.readouterr().out.startswith("loss ")
