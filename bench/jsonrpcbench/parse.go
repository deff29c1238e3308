package jsonrpcbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	lsp "go.lsp.dev/jsonrpc2"
)

const parseCase = "parse"

// parseMessage is a request of 290 B as programs send it.
func parseMessage() []byte {
	return []byte(`{"jsonrpc":"2.0","id":1234567,"method":"tasks/send","params":{"id":"3f2a9c70-8d55-4b1e-9a0f-5b2c7d1e8f44",` +
		`"session":"a1b2c3d4e5f6","priority":3,"deadline":1893456000.25,"parent":null,"tags":["alpha","beta","gamma"],` +
		`"message":{"role":"user","text":"Summarise the incident report, please."}}}`)
}

// scanBenchmark is laid over package jsonrpc when its test binary is built:
// the scanner is not exported. The binary is started in each round between the
// peers and given the same message.
const scanBenchmark = `package jsonrpc

import (
	"os"
	"testing"
)

func BenchmarkHarness(b *testing.B) {
	text := []byte(os.Getenv("MESSAGE"))
	var m message
	b.ReportAllocs()
	for b.Loop() {
		m.scan(text, 128)
	}
	if m.kind != kindRequest {
		b.Fatal(m.fault)
	}
}
`

// parse compares Parley's scanner, which checks everything, with the peer's,
// which checks the brackets, and with encoding/json's check of the grammar.
func (o Options) parse(ctx context.Context, r *Report) error {
	bench, clean, err := scanBinary(ctx)
	if err != nil {
		return err
	}
	defer clean()
	text := parseMessage()
	peers := map[string]func() error{
		"go.lsp.dev view": func() error { _, err := lsp.ScanMessageView(text); return err },
		"go.lsp.dev":      func() error { _, err := lsp.DecodeMessage(text); return err },
		"encoding/json Valid": func() error {
			if !json.Valid(text) {
				return errors.New("not valid")
			}
			return nil
		},
	}
	our := new(result)
	theirs := make(map[string]*result)
	for range o.rounds() {
		p, err := bench(ctx, o.duration())
		if err != nil {
			return err
		}
		our.passes = append(our.passes, p)
		for name, f := range peers {
			if theirs[name] == nil {
				theirs[name] = &result{entrant: entrant{name: name, role: peer}}
			}
			p, err := repeatFor(o.duration(), f)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			theirs[name].passes = append(theirs[name].passes, p)
		}
	}
	m := &matchResult{match: match{
		name: parseCase, title: "parse a request of 290 B", unit: "messages/s", load: load{kind: notify}, // no latencies
		bars: []bar{{metric: cpuEach, text: "≤ 240 ns", limit: 240}, {metric: allocsEach, text: "0", limit: 0.001}},
	}, results: []*result{our}}
	our.name, our.role = "Parley", ours
	for _, t := range theirs {
		m.results = append(m.results, t)
	}
	slices.SortFunc(m.results[1:], func(a, b *result) int { return strings.Compare(a.name, b.name) })
	r.add(m)
	return nil
}

// repeatFor calls f again and again for d.
func repeatFor(d time.Duration, f func() error) (pass, error) {
	const bunch = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var p pass
	for cpu, begin := cpuTime(), time.Now(); p.wall < d; p.wall, p.cpu = time.Since(begin), cpuTime()-cpu {
		for range bunch {
			if err := f(); err != nil {
				return p, err
			}
		}
		p.ops += bunch
	}
	runtime.ReadMemStats(&after)
	p.bytes, p.allocs = after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
	return p, nil
}

// scanBinary builds the test binary of package jsonrpc and returns what runs
// the benchmark in it.
func scanBinary(ctx context.Context) (run func(context.Context, time.Duration) (pass, error), clean func(), err error) {
	dir, err := os.MkdirTemp("", "jsonrpcbench")
	if err != nil {
		return nil, nil, err
	}
	clean = func() { _ = os.RemoveAll(dir) }
	binary := filepath.Join(dir, "scan.test")
	if err := buildScan(ctx, dir, binary); err != nil {
		clean()
		return nil, nil, fmt.Errorf("build the test binary of package jsonrpc: %w", err)
	}
	return func(ctx context.Context, d time.Duration) (pass, error) {
		bench := exec.CommandContext(ctx, binary, "-test.run=^$", "-test.bench=^BenchmarkHarness$", "-test.benchtime="+d.String())
		bench.Env = append(os.Environ(), "MESSAGE="+string(parseMessage()))
		out, err := bench.Output()
		if err != nil {
			return pass{}, fmt.Errorf("%w: %s", err, out)
		}
		return parseBenchmark(string(out))
	}, clean, nil
}

func buildScan(ctx context.Context, dir, binary string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/parley-project/parley").Output()
	if err != nil {
		return err
	}
	source, overlay := filepath.Join(dir, "scan.go"), filepath.Join(dir, "overlay.json")
	module := strings.TrimSpace(string(root))
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(module, "jsonrpc", "harness_test.go"): source,
	}})
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(source, []byte(scanBenchmark), 0o600), os.WriteFile(overlay, text, 0o600)); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", binary, "./jsonrpc")
	build.Dir, build.Stderr = module, os.Stderr
	return build.Run()
}

// parseBenchmark reads the line that a benchmark prints:
//
//	BenchmarkHarness-2   5120476   217.3 ns/op   0 B/op   0 allocs/op
func parseBenchmark(out string) (pass, error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 8 || !strings.HasPrefix(f[0], "BenchmarkHarness") {
			continue
		}
		at := func(unit string) float64 {
			i := slices.Index(f, unit)
			if i < 1 {
				return 0
			}
			v, err := strconv.ParseFloat(f[i-1], 64)
			if err != nil {
				return 0
			}
			return v
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return pass{}, err
		}
		took := time.Duration(at("ns/op") * float64(n))
		if took <= 0 {
			return pass{}, fmt.Errorf("no time in %q", line)
		}
		return pass{
			ops: n, wall: took, cpu: took, // one goroutine: the same on a quiet machine
			bytes: uint64(at("B/op") * float64(n)), allocs: uint64(at("allocs/op") * float64(n)),
		}, nil
	}
	return pass{}, fmt.Errorf("no benchmark in %q", out)
}
