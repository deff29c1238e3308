package parley_test

import (
	"encoding/json"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// policy is the import policy of the module: a package, and what of ours it
// may import in code that is not a test. Paths are below the module; "." is
// the root package, a trailing "/..." a subtree. Arrows point down, siblings
// do not know each other, only server knows all.
const policy = `
.:
jsonrpc:
jsonrpc/...:                  jsonrpc
jsonrpc/internal/blot:
jsonrpc/rpchttp:              jsonrpc jsonrpc/internal/blot
jsonrpc/rpcws:                jsonrpc jsonrpc/internal/blot
jsonrpc/rpcdial:              jsonrpc jsonrpc/rpchttp jsonrpc/rpcws
client:                       .
internal/logging:             .
internal/chaos:
internal/config:              .
internal/bus:
internal/bus/...:             internal/bus
internal/bus/kafka:           . internal/bus
internal/records:             .
internal/breaker:             .
internal/admission:
internal/workflow/expr:       .
internal/workflow:            . internal/workflow/cron internal/workflow/expr
internal/workflow/cron:
internal/workflow/schemas:
internal/workflow/workflowtest:
internal/workflow/outline:    internal/workflow
internal/workflow/drawing:    internal/workflow internal/workflow/outline
internal/dryrun:              . internal/workflow internal/workflow/expr
internal/workflow/difference: internal/workflow internal/workflow/outline
internal/workflow/convert:    . internal/workflow internal/workflow/expr internal/workflow/outline
internal/values:
internal/values/...:          internal/values
internal/values/files:        internal/keyfile internal/values
internal/values/s3:           . internal/values
internal/store:               . internal/values
internal/tracing:             .
internal/tracing/tracingtest:
internal/executor:            . internal/bus internal/records internal/store internal/tracing internal/workflow internal/workflow/expr
internal/bridge:              . internal/admission internal/breaker internal/bus internal/records internal/store internal/tracing
internal/bridge/simplea2a:    . internal/bridge
internal/bridge/a2a:          . internal/bridge internal/bridge/a2a/a2apb internal/bridge/a2a/agentcard jsonrpc jsonrpc/rpcdial jsonrpc/rpcws
internal/bridge/a2a/a2apb:
internal/bridge/a2a/agentcard: . internal/bridge
internal/bridge/adaptertest:  . internal/bridge
internal/keyfile:
internal/testcache:
internal/kafkatest:           internal/testcache
internal/pgtest:              internal/testcache
internal/zone/endtoend:
internal/registry:            . internal/keyfile internal/store
internal/oldplatform:         . internal/registry internal/store internal/workflow
internal/push:                . internal/bus internal/keyfile
internal/deadletter:          . internal/bus internal/store
internal/health:              . internal/store
internal/schedule:            . internal/store internal/workflow
internal/api:                 . internal/store
internal/archive:             . internal/store
internal/retention:           . internal/archive internal/store
internal/zone:                . jsonrpc
internal/zone/execution:      . internal/zone internal/zone/zoneauth jsonrpc
internal/zone/zonetest:       . internal/zone internal/zone/execution jsonrpc
internal/sample:              .
internal/zone/direct:         . internal/zone internal/zone/zoneauth jsonrpc
internal/zone/agentcore:      . internal/zone internal/zone/direct internal/zone/zoneauth jsonrpc
internal/zone/agentcore/agentcoretest: . internal/zone
internal/zone/zoneauth:       .
internal/zone/verification:   . internal/store internal/zone
internal/zone/verification/slacktest:
internal/server:              ...
cmd/parley:                   . client internal/config internal/dryrun internal/logging internal/oldplatform internal/registry internal/sample internal/server internal/workflow internal/workflow/convert internal/workflow/difference internal/workflow/drawing internal/workflow/outline internal/workflow/schemas jsonrpc jsonrpc/rpcdial jsonrpc/rpchttp jsonrpc/rpcpractice jsonrpc/rpcws
examples/adapters/graphql:    . internal/bridge
examples/adapters/server:     examples/adapters/graphql internal/server
examples/...:                 jsonrpc jsonrpc/rpcdial jsonrpc/rpchttp jsonrpc/rpcws
scripts/services:             internal/kafkatest internal/pgtest
scripts/site:
scripts/testsum:
`

const module = "github.com/parley-project/parley"

// TestImports fails on any import of ours that the policy does not allow.
func TestImports(t *testing.T) {
	allowed := parsePolicy()
	for _, p := range packages(t) {
		rules, ok := allowedFor(allowed, rel(p.ImportPath))
		if !ok {
			t.Errorf("%s: not in the import policy; add a line to deps_test.go", rel(p.ImportPath))
			continue
		}
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, module) && !slices.Contains(rules, "...") && !slices.Contains(rules, rel(imp)) {
				t.Errorf("%s imports %s, which the import policy does not allow", rel(p.ImportPath), rel(imp))
			}
		}
	}
}

// TestImportsPureCore holds the core to being pure: no clock is enforced by
// reading, but no package that does I/O may come in.
func TestImportsPureCore(t *testing.T) {
	banned := []string{"net", "net/http", "os", "database/sql", "math/rand", "math/rand/v2", "crypto/rand", "log/slog"}
	for _, p := range packages(t) {
		if rel(p.ImportPath) != "internal/workflow" {
			continue
		}
		for _, imp := range p.Imports {
			if slices.Contains(banned, imp) {
				t.Errorf("internal/workflow imports %s: the core is pure", imp)
			}
		}
	}
}

// TestImportsJSONRPC holds the JSON-RPC library to the standard library, so that
// who imports it gets nothing else: the package itself and its HTTP streams
// (the WebSocket ones stand on coder/websocket).
func TestImportsJSONRPC(t *testing.T) {
	seen := 0
	for _, p := range packages(t) {
		if r := rel(p.ImportPath); r != "jsonrpc" && r != "jsonrpc/rpchttp" {
			continue
		}
		seen++
		for _, imp := range p.Imports {
			first, _, _ := strings.Cut(imp, "/")
			if strings.Contains(first, ".") && !strings.HasPrefix(imp, module+"/jsonrpc") {
				t.Errorf("%s imports %s, which is not in the standard library", rel(p.ImportPath), imp)
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d packages looked at, want 2", seen)
	}
}

type listed struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p listed
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func parsePolicy() map[string][]string {
	rules := make(map[string][]string)
	for line := range strings.Lines(policy) {
		if from, to, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			rules[from] = strings.Fields(to)
		}
	}
	return rules
}

func allowedFor(rules map[string][]string, pkg string) ([]string, bool) {
	if r, ok := rules[pkg]; ok {
		return r, true
	}
	for dir := path.Dir(pkg); dir != "."; dir = path.Dir(dir) {
		if r, ok := rules[dir+"/..."]; ok {
			return r, true
		}
	}
	return nil, false
}

func rel(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}
