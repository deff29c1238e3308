package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
)

// a2aBench measures the codec of A2A on exchanges of 1 KB, and the memory of
// 5,000 tasks in flight.
func a2aBench(ctx context.Context, o options) ([]row, error) {
	rows, err := a2aCodec(o)
	if err != nil {
		return nil, err
	}
	memory, err := a2aMemory(ctx, o)
	return append(rows, memory...), err
}

// The bars of the codec, in microseconds.
const (
	encodeBar = 2.0
	decodeBar = 5.0
)

// translation is one direction of the codec, and the floor: the least that a
// program does with the same bytes.
type translation struct {
	name       string
	bar        float64
	ours, base func() error
}

// a2aCodec measures both directions in both dialects. The floor of encoding is
// to encode a struct of the same shape, that of decoding to check that the bytes
// are JSON, both with encoding/json.
func a2aCodec(o options) ([]row, error) {
	adapter := a2a.New(a2a.Options{Exchange: bridge.NewExchange(bridge.ExchangeConfig{})})
	defer adapter.Close()
	var all []translation
	for _, v := range []a2a.Version{a2a.V03, a2a.V10} {
		e, err := encoding(adapter, v)
		if err != nil {
			return nil, err
		}
		all = append(all, e, decoding(v))
	}
	rounds := 5
	if o.quick {
		rounds = 3
	}
	var rows []row
	for _, t := range all {
		var ours, floors []float64
		allocs := 0.0
		for range rounds {
			f, err := timed(t.base)
			if err != nil {
				return nil, err
			}
			p, err := timed(t.ours)
			if err != nil {
				return nil, err
			}
			floors, ours, allocs = append(floors, micros(f)), append(ours, micros(p)), float64(p.AllocsPerOp())
		}
		r := compare(row{Case: t.name, Metric: "time", Unit: "µs", Bar: fmt.Sprintf("≤ %g µs", t.bar)}, ours, floors)
		r.Holds = r.Value <= t.bar
		rows = append(rows, r, row{Case: t.name, Metric: "allocations", Unit: "allocs", Value: allocs})
	}
	return rows, nil
}

func micros(r testing.BenchmarkResult) float64 {
	return float64(r.T.Nanoseconds()) / float64(r.N) / 1e3
}

func timed(f func() error) (testing.BenchmarkResult, error) {
	var failed error
	r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if failed = f(); failed != nil {
				b.FailNow()
			}
		}
	})
	return r, failed
}

// encoding is a task of about 1 KB that becomes a request: all that happens
// before the exchange.
func encoding(adapter *a2a.Adapter, v a2a.Version) (translation, error) {
	words := strings.Repeat("Say hello to everybody. ", 35)
	input, err := json.Marshal(map[string]string{"text": words})
	if err != nil {
		return translation{}, err
	}
	task := parley.Task{ID: "run-1.ask.1", Input: input}
	agent := parley.Agent{URL: "http://agent.test/run", ProtocolConfig: json.RawMessage(`{"a2a":"` + string(v) + `"}`)}
	body, err := adapter.Request(task, agent)
	if err != nil {
		return translation{}, err
	}
	var shape struct {
		JSONRPC string `json:"jsonrpc"`
		ID      string `json:"id"`
		Method  string `json:"method"`
		Params  struct {
			Message struct {
				MessageID string              `json:"messageId"`
				Role      string              `json:"role"`
				Parts     []map[string]string `json:"parts"`
			} `json:"message"`
			Configuration map[string]any `json:"configuration"`
		} `json:"params"`
	}
	if err := json.Unmarshal(body, &shape); err != nil {
		return translation{}, err
	}
	return translation{
		name: fmt.Sprintf("A2A %s: encode, %d bytes", v, len(body)), bar: encodeBar,
		ours: func() error { _, err := adapter.Request(task, agent); return err },
		base: func() error { _, err := json.Marshal(&shape); return err },
	}, nil
}

// decoding is an answer of 1 KB that becomes a result.
func decoding(v a2a.Version) translation {
	words := strings.Repeat("Hello there. ", 25)
	result := `{"kind":"task","id":"task-1","contextId":"ctx-1","status":{"state":"completed","timestamp":"2026-11-21T10:00:00Z"},` +
		`"artifacts":[{"artifactId":"a","name":"text","parts":[{"kind":"text","text":"` + words + `"}]}],` +
		`"history":[{"kind":"message","role":"user","messageId":"m1","parts":[{"kind":"text","text":"hello"}]},` +
		`{"kind":"message","role":"agent","messageId":"m2","parts":[{"kind":"text","text":"` + words + `"}]}],"metadata":{"tokens":123}}`
	if v == a2a.V10 {
		result = `{"task":{"id":"task-1","contextId":"ctx-1","status":{"state":"TASK_STATE_COMPLETED","timestamp":"2026-11-21T10:00:00Z"},` +
			`"artifacts":[{"artifactId":"a","name":"text","parts":[{"text":"` + words + `"}]}],` +
			`"history":[{"role":"ROLE_USER","messageId":"m1","parts":[{"text":"hello"}]},` +
			`{"role":"ROLE_AGENT","messageId":"m2","parts":[{"text":"` + words + `"}]}],"metadata":{"tokens":123}}}`
	}
	body := []byte(`{"jsonrpc":"2.0","id":"run-1.ask.1","result":` + result + `}`)
	return translation{
		name: fmt.Sprintf("A2A %s: decode, %d bytes", v, len(body)), bar: decodeBar,
		ours: func() error { _, _, err := a2a.Response(v, body, "run-1.ask.1"); return err },
		base: func() error {
			if !json.Valid(bytes.TrimSpace(body)) {
				return fmt.Errorf("the answer is no JSON")
			}
			return nil
		},
	}
}
