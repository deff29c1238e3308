package a2a

import (
	"maps"
	"testing"
)

// route is one way to an agent: an SDK, a dialect and a binding.
type route struct {
	kind             kind
	version, binding string
	// at names the address in what the agent says of itself.
	at string
}

// kinds are all SDKs.
func kinds() []kind { return []kind{go10, go03, python10, python03, js10, js03, java03} }

// dual says whether an SDK's server can speak both dialects.
func (k kind) dual() bool { return k == go10 || k == python10 || k == js10 }

// routes are the ways to an agent that speaks all that it can.
func (k kind) routes() []route {
	if !k.dual() {
		return []route{{k, "0.3", "JSONRPC", "jsonrpc03"}}
	}
	return []route{
		{k, "1.0", "JSONRPC", "jsonrpc"},
		{k, "1.0", "HTTP+JSON", "rest"},
		{k, "1.0", "GRPC", "grpc"},
		// The same server with its compatibility switched on.
		{k, "0.3", "JSONRPC", "jsonrpc03"},
	}
}

// routes are all ways that there are.
func routes() []route {
	var all []route
	for _, k := range kinds() {
		all = append(all, k.routes()...)
	}
	return all
}

// name is the route's in names of tests.
func (r route) name() string { return string(r.kind) + "/" + r.binding + "-" + r.version }

// url is where a is on the route.
func (r route) url(a *agent) string {
	if r.binding == "GRPC" {
		return "http://" + a.where[r.at]
	}
	return a.where[r.at]
}

// pins is the protocol_config that names the route, with more members.
func (r route) pins(more map[string]any) map[string]any {
	config := map[string]any{"a2a": r.version, "binding": r.binding}
	maps.Copy(config, more)
	return config
}

// scene is one agent on one route, and a Parley that knows it by name.
type scene struct {
	*world
	route
	agent *agent
	name  string
}

// key is a name for a gate that nobody else has.
func (s *scene) key() string { return s.name }

// each plays f with every route, all at once, in one Parley.
func each(t *testing.T, config map[string]any, f func(t *testing.T, s *scene)) {
	t.Helper()
	w := newWorld(t)
	for _, r := range routes() {
		t.Run(r.name(), func(t *testing.T) {
			parallel(t)
			a := sharedAgent(t, r.kind)
			s := &scene{world: w, route: r, agent: a}
			s.name = w.register(t, registration{url: r.url(a), config: r.pins(config)})
			f(t, s)
		})
	}
}

// once wants the agent to have been given a run's message exactly once.
func (s *scene) once(t *testing.T, run string) {
	t.Helper()
	executions, _ := s.agent.entries(t, run)
	if len(executions) != 1 {
		t.Errorf("the agent executed the run %d times: %+v", len(executions), executions)
	}
}
