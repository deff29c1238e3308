package oldplatform

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-project/parley/internal/bridge"
)

// TestOldExecutorOurBridge: executors of the existing platform get, from a
// bridge of ours with a store and without, what they take for a result of theirs,
// one for each task; a record that they write twice is one call.
func TestOldExecutorOurBridge(t *testing.T) {
	t.Parallel()
	for name, ledger := range map[string]func(s *scene) bridge.Ledger{
		"store": func(s *scene) bridge.Ledger { return s.store() },
		"none":  func(*scene) bridge.Ledger { return bridge.NewMemoryLedger() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.bridge(ledger(s))
			text := func(v string) map[string]any { return map[string]any{"text": v} }
			good := play(t, "executor.py", s.args(map[string]any{"run": "run-good", "steps": []map[string]any{
				{"id": "step-1", "agent": "Writer", "input": text("nul Zürich \U0001D11E")},
				{"id": "step-2", "agent": "Reader", "input": map[string]any{"query": "", "n": 1.5}, "twice": true},
			}}))
			failing := play(t, "executor.py", s.args(map[string]any{"run": "run-failing", "tries": 2, "steps": []map[string]any{
				{"id": "step-1", "agent": "Writer", "input": text("fail")},
			}}))
			refused := play(t, "executor.py", s.args(map[string]any{"run": "run-refused", "steps": []map[string]any{
				{"id": "step-1", "agent": "Writer", "input": text("refuse")},
			}}))
			unknown := play(t, "executor.py", s.args(map[string]any{"run": "run-unknown", "steps": []map[string]any{
				{"id": "step-1", "agent": "Nobody", "input": text("x")},
			}}))
			for _, p := range []*peer{good, failing, refused, unknown} {
				p.end()
			}
			steps := good.told("step")
			if len(steps) != 2 {
				t.Fatalf("steps %+v", steps)
			}
			for i, want := range []struct{ text, found string }{
				{"done: nul Zürich \U0001D11E", "Ü\uFFFDé\U0001D11E"}, {`done: {"n": 1.5, "query": ""}`, "Ü"},
			} {
				var out struct {
					Text     string `json:"text"`
					Findings struct {
						Zeichen string      `json:"zeichen"`
						N       json.Number `json:"n"`
					} `json:"findings"`
				}
				if steps[i].Error != nil || json.Unmarshal(steps[i].Output, &out) != nil || !alike(out.Text, want.text) ||
					out.Findings.Zeichen != want.found {
					t.Errorf("step %s: %s, error %v, want text %q and findings", steps[i].Step, steps[i].Output, steps[i].Error, want)
				}
			}
			for p, want := range map[*peer]string{
				failing: "JSON-RPC Error -32000: no papër", refused: "HTTP 422: Client error '422 Unprocessable Entity'", unknown: "not found",
			} {
				list := p.told("step")
				if len(list) != 1 || list[0].Error == nil || !strings.Contains(*list[0].Error, want) {
					t.Errorf("%s: %+v, want %q", p.name, list, want)
				} else {
					t.Logf("error %q", *list[0].Error)
				}
			}
			for id, n := range s.agents.called() {
				if n != 1 {
					t.Errorf("%s was sent %d times", id, n)
				}
			}
			for id, n := range s.audit() {
				if n != 1 {
					t.Errorf("%d results for %s", n, id)
				}
			}
		})
	}
}

// alike compares texts but for spaces, which say nothing in JSON.
func alike(a, b string) bool {
	return strings.ReplaceAll(a, " ", "") == strings.ReplaceAll(b, " ", "")
}
