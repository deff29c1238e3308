package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/parley-project/parley"
)

// route is one operation: how it is served and how it is described.
type route struct {
	method, path string
	// id is the operationId, tag the group it stands in.
	id, tag, summary string
	// public needs no key. old is a path of formats.md: its status codes hold.
	public, old bool
	params      []*huma.Param
	// body is a value of the type that documents the request; nil is none.
	body any
	// document says that the body is a workflow in YAML or JSON; body is then
	// the old form beside it. optional bodies may be left out.
	document, optional bool
	// lines says that the body is lines of JSON, anyBody that it may be anything.
	lines, anyBody bool
	answers        []answer
	// errors are the statuses of formats.md and ours besides those that every
	// operation can have.
	errors []int
	handle func(http.ResponseWriter, *http.Request) error
}

// answer is one successful response. A nil body has no content of its own; a
// type other than JSON is described as text.
type answer struct {
	status int
	body   any
	media  string
}

func ok(body any) []answer { return []answer{{status: http.StatusOK, body: body}} }

// table is every operation there is.
func (s *server) table() []route {
	routes := append(s.workflowRoutes(), s.releaseRoutes()...)
	routes = append(routes, s.runRoutes()...)
	routes = append(routes, s.controlRoutes()...)
	routes = append(routes, s.bulkRoutes()...)
	routes = append(routes, s.archiveRoutes()...)
	routes = append(routes, s.agentRoutes()...)
	routes = append(routes, s.healthRoutes()...)
	routes = append(routes, s.breakerRoutes()...)
	routes = append(routes, s.deadLetterRoutes()...)
	routes = append(routes, s.signalRoutes()...)
	routes = append(routes, s.scheduleRoutes()...)
	routes = append(routes, s.hookRoutes()...)
	routes = append(routes, s.keyRoutes()...)
	routes = append(routes, auditRoute(s))
	routes = append(routes, schemaRoute(s))
	return append(routes, s.systemRoutes()...)
}

func (s *server) workflowRoutes() []route {
	const tag = "workflows"
	ref := pathParam("ref", "A version's UUID, a workflow_id, a name, workflow@version or workflow@alias.")
	file := queryParam("file", huma.TypeString, "How problems name the document.")
	return []route{
		{
			method: http.MethodPost, path: "/api/v1/workflows", id: "apply-workflow", tag: tag, old: true,
			summary: "Deploy a workflow: a document, or the existing platform's body, which always makes a new version",
			params:  []*huma.Param{file}, body: planBody{}, document: true,
			answers: []answer{{status: http.StatusCreated, body: workflowBody{}}, {status: http.StatusOK, body: workflowBody{}}},
			errors:  []int{400, 409, 413, 415, 422}, handle: s.applyWorkflow,
		},
		{
			method: http.MethodPost, path: "/api/v1/workflows:validate", id: "validate-workflow", tag: tag,
			summary: "Say what is wrong with a document, and deploy nothing",
			params:  []*huma.Param{file}, body: planBody{}, document: true,
			answers: ok(validation{}), errors: []int{413, 415, 422}, handle: s.validateWorkflow,
		},
		{
			method: http.MethodGet, path: "/api/v1/workflows", id: "list-workflows", tag: tag, old: true,
			summary: "List workflows, newest first",
			params: append(pageParams(), queryParam("name", huma.TypeString, "The exact name."), statusParam(),
				queryParam("sort_by", huma.TypeString, "created_at, updated_at or name."), orderParam()),
			answers: ok(pageOf[workflowBody]{}), errors: []int{422}, handle: s.listWorkflows,
		},
		{
			method: http.MethodGet, path: "/api/v1/workflows/{ref}", id: "get-workflow", tag: tag, old: true,
			summary: "Get one version with its document", params: []*huma.Param{ref},
			answers: ok(workflowBody{}), errors: []int{404}, handle: s.getWorkflow,
		},
		{
			method: http.MethodPut, path: "/api/v1/workflows/{ref}", id: "change-workflow", tag: tag, old: true,
			summary: "Change a workflow under its id: a whole document, or the members that change",
			params:  []*huma.Param{ref, file}, body: planChange{}, document: true,
			answers: ok(workflowBody{}), errors: []int{400, 404, 413, 415, 422}, handle: s.changeWorkflow,
		},
		{
			method: http.MethodDelete, path: "/api/v1/workflows/{ref}", id: "remove-workflow", tag: tag, old: true,
			summary: "Mark a workflow deleted, or one version of it that no alias stands for; again is no error", params: []*huma.Param{ref},
			answers: ok(messageBody{}), errors: []int{404, 409}, handle: s.removeWorkflow,
		},
		{
			method: http.MethodGet, path: "/api/v1/workflows/{ref}/versions", id: "list-versions", tag: tag, old: true,
			summary: "List all versions of a workflow, newest first", params: append(pageParams(), ref),
			answers: ok(pageOf[workflowBody]{}), errors: []int{404, 422}, handle: s.workflowVersions,
		},
		{
			method: http.MethodPost, path: "/api/v1/workflows/{ref}/execute", id: "start-run", tag: tag, old: true,
			summary: "Start a run", params: append(beginParams(), ref, preferParam()), body: executeBody{},
			answers: startAnswers(), errors: []int{400, 404, 409, 413, 415, 422}, handle: s.execute,
		},
	}
}

func startAnswers() []answer {
	return []answer{{status: http.StatusAccepted, body: runBody{}}, {status: http.StatusOK, body: runBody{}}}
}

func (s *server) runRoutes() []route {
	const tag = "runs"
	id := pathParam("id", "The run's id.")
	return []route{
		{
			method: http.MethodGet, path: "/api/v1/runs", id: "list-runs", tag: tag, old: true,
			summary: "List runs, newest first: by pages with a total, or with limit or cursor without one",
			params:  append(append(pageParams(), cursorParams()...), runFilters()...),
			answers: []answer{{status: http.StatusOK, body: runList{}}}, errors: []int{422}, handle: s.listRuns,
		},
		{
			method: http.MethodGet, path: "/api/v1/runs/{id}", id: "get-run", tag: tag, old: true,
			summary: "Get one run with its steps", params: []*huma.Param{id},
			answers: ok(runBody{}), errors: []int{404}, handle: s.getRun,
		},
		{
			method: http.MethodGet, path: "/api/v1/runs/{id}/steps", id: "list-steps", tag: tag, old: true,
			summary: "List a run's steps by the time they started", params: []*huma.Param{id},
			answers: ok([]stepBody{}), errors: []int{404}, handle: s.getSteps,
		},
		{
			method: http.MethodGet, path: "/api/v1/runs/{id}/attempts", id: "list-attempts", tag: tag,
			summary: "List the calls of agents that were made for a run, in the order in which they were scheduled",
			params:  append(pageParams(), id, queryParam("step", huma.TypeString, "Only those of one step.")),
			answers: ok(pageOf[parley.Attempt]{}), errors: []int{404, 422}, handle: s.listAttempts,
		},
		{
			method: http.MethodGet, path: "/api/v1/runs/{id}/events", id: "list-events", tag: tag,
			summary: "Get a run's history: a page, or a stream that ends with the run",
			params:  append([]*huma.Param{id}, eventParams()...),
			answers: []answer{
				{status: http.StatusOK, body: eventsPage{}},
				{status: http.StatusOK, media: "text/event-stream"},
				{status: http.StatusNoContent},
			},
			errors: []int{404, 422, 429}, handle: s.runEvents,
		},
		{
			method: http.MethodGet, path: "/api/v1/runs/{id}/logs", id: "get-logs", tag: tag, old: true,
			summary: "Not implemented, as on the existing platform", params: []*huma.Param{id},
			errors: []int{404, 501}, handle: s.runLogs,
		},
		{
			method: http.MethodPost, path: "/api/v1/runs/{id}/cancel", id: "cancel-run", tag: tag, old: true,
			summary: "Ask for the end of a run", params: []*huma.Param{id}, body: cancelBody{}, optional: true,
			answers: ok(runBody{}), errors: []int{400, 404, 409, 413, 415, 422}, handle: s.cancelRun,
		},
		{
			method: http.MethodPost, path: "/api/v1/runs/{id}/answer", id: "answer-run", tag: tag,
			summary: "Answer what an agent waits for (the step whose phase is input_required shows its question), or an approval",
			params:  []*huma.Param{id}, body: answerBody{},
			answers: []answer{{status: http.StatusAccepted, body: runBody{}}},
			errors:  []int{400, 403, 404, 409, 413, 415, 422}, handle: s.answerRun,
		},
		{
			method: http.MethodPost, path: "/api/v1/runs/{id}/retry", id: "retry-run", tag: tag, old: true,
			summary: "Make a new run of a failed or cancelled one; what is done is not done again",
			params:  append(beginParams(), id), body: retryBody{}, optional: true,
			answers: []answer{{status: http.StatusAccepted, body: runBody{}}},
			errors:  []int{400, 404, 409, 413, 415, 422}, handle: s.retryRun,
		},
	}
}

func (s *server) agentRoutes() []route {
	const tag = "agents"
	ref := pathParam("ref", "The agent's id or name.")
	return []route{
		{
			method: http.MethodPost, path: "/api/v1/agents", id: "add-agent", tag: tag, old: true,
			summary: "Register an agent", body: agentCreate{},
			answers: []answer{{status: http.StatusCreated, body: agentBody{}}}, errors: []int{400, 413, 415, 422, 502, 504}, handle: s.addAgent,
		},
		{
			method: http.MethodGet, path: "/api/v1/agents", id: "list-agents", tag: tag, old: true,
			summary: "List agents, also deleted ones",
			params: append(pageParams(), queryParam("name", huma.TypeString, "The exact name."),
				queryParam("protocol", huma.TypeString, "The protocol's name."), statusParam()),
			answers: ok(pageOf[agentBody]{}), errors: []int{422}, handle: s.listAgents,
		},
		{
			method: http.MethodGet, path: "/api/v1/agents/{ref}", id: "get-agent", tag: tag, old: true,
			summary: "Get one agent", params: []*huma.Param{ref}, answers: ok(agentBody{}), errors: []int{404}, handle: s.getAgent,
		},
		{
			method: http.MethodPut, path: "/api/v1/agents/{ref}", id: "change-agent", tag: tag, old: true,
			summary: "Change the members that are given", params: []*huma.Param{ref}, body: agentUpdate{},
			answers: ok(agentBody{}), errors: []int{400, 404, 409, 413, 415, 422, 502, 504}, handle: s.changeAgent,
		},
		{
			method: http.MethodDelete, path: "/api/v1/agents/{ref}", id: "remove-agent", tag: tag, old: true,
			summary: "Mark an agent deleted; again is no error", params: []*huma.Param{ref},
			answers: ok(messageBody{}), errors: []int{404, 409}, handle: s.removeAgent,
		},
		{
			method: http.MethodPost, path: "/api/v1/agents/{ref}/check", id: "recheck-agent", tag: tag,
			summary: "Look at an agent and its card anew, and say what changed", params: []*huma.Param{ref}, answers: ok(checkBody{}),
			errors: []int{404, 409}, handle: s.checkAgent,
		},
		{
			method: http.MethodPost, path: "/api/v1/agents:detect", id: "detect-agent", tag: tag,
			summary: "Find out how an agent is called, and store nothing", body: agentDetect{},
			answers: ok(parley.Detection{}), errors: []int{404, 413, 415, 422, 502, 504}, handle: s.detectAgent,
		},
		{
			method: http.MethodPost, path: "/api/v1/agents/{ref}/call", id: "call-agent", tag: tag,
			summary: "Start a hidden run of one step", params: append(beginParams(), ref, preferParam()), body: callBody{},
			answers: startAnswers(), errors: []int{404, 409, 413, 415, 422}, handle: s.callAgent,
		},
	}
}

func (s *server) systemRoutes() []route {
	const tag = "system"
	text := []answer{{status: http.StatusOK, media: "text/plain"}}
	openAPI := []answer{{status: http.StatusOK, body: map[string]any{}}}
	ready := []answer{{status: http.StatusOK, body: readyBody{}}, {status: http.StatusServiceUnavailable, body: readyBody{}}}
	readyz := []answer{{status: http.StatusOK, body: readyzBody{}}, {status: http.StatusServiceUnavailable, body: readyzBody{}}}
	get := http.MethodGet
	return []route{
		{method: get, path: "/", id: "index", tag: tag, old: true, summary: "Say what this is", answers: ok(indexBody{}), handle: s.index},
		{method: get, path: "/health", id: "health", tag: tag, old: true, summary: "Say that the process lives", answers: ok(aliveBody{}), handle: s.health},
		{method: get, path: "/health/ready", id: "health-ready", tag: tag, old: true, summary: "Say whether requests can be served", answers: ready, handle: s.healthReady},
		{method: get, path: "/healthz", id: "healthz", tag: tag, public: true, summary: "Say that the process lives", answers: ok(statusBody{}), handle: s.healthz},
		{method: get, path: "/readyz", id: "readyz", tag: tag, public: true, summary: "Say whether requests can be served", answers: readyz, handle: s.readyz},
		{method: get, path: "/metrics", id: "metrics", tag: tag, public: true, summary: "Metrics in Prometheus' text format", answers: text, handle: s.metrics},
		{method: get, path: "/openapi.json", id: "openapi", tag: tag, public: true, summary: "This document", answers: openAPI, handle: s.openAPI},
		{method: get, path: "/api/v1/openapi.json", id: "openapi-v1", tag: tag, public: true, summary: "This document", answers: openAPI, handle: s.openAPI},
	}
}

func pathParam(name, doc string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
}

func queryParam(name, kind, doc string) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: doc, Schema: &huma.Schema{Type: kind}}
}

func headerParam(name, doc string) *huma.Param {
	return &huma.Param{Name: name, In: "header", Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
}

// integerParam is a whole number from least to most in the query.
func integerParam(name string, least, most float64, doc string) *huma.Param {
	p := queryParam(name, huma.TypeInteger, doc)
	p.Schema.Minimum, p.Schema.Maximum = &least, &most
	return p
}

// wordParam is one of few words in the query, which [query.word] reads.
func wordParam[T ~string](name, doc string, words ...T) *huma.Param {
	p := queryParam(name, huma.TypeString, doc)
	for _, w := range words {
		p.Schema.Enum = append(p.Schema.Enum, string(w))
	}
	return p
}

// textParam is a text of at most maxText characters in the query.
func textParam(name, doc string) *huma.Param {
	p := queryParam(name, huma.TypeString, doc)
	p.Schema.MaxLength = new(maxText)
	return p
}

func pageParams() []*huma.Param {
	return []*huma.Param{
		integerParam("page", 1, maxPage, "Counts from 1."),
		integerParam("page_size", 1, 100, "Default 20."),
	}
}

func eventParams() []*huma.Param {
	return []*huma.Param{
		integerParam("after", 0, maxAfter, "Only events with a greater seq."),
		integerParam("limit", 1, maxEvents, "Default 100; pages only."),
		headerParam("Last-Event-ID", "Streams: as after."),
	}
}

func statusParam() *huma.Param {
	return queryParam("status", huma.TypeString, string(parley.AgentActive)+", "+string(parley.AgentInactive)+" or "+
		string(parley.AgentDeleted)+"; anything else matches nothing.")
}

func orderParam() *huma.Param {
	return queryParam("sort_order", huma.TypeString, "asc, or desc (default).")
}

// traceParams are the headers that [traceOf] reads.
func traceParams() []*huma.Param {
	return []*huma.Param{
		headerParam(parley.HeaderTraceparent, "The trace that the run belongs to (W3C Trace Context): its agents are sent the same. One that is not valid is ignored."),
		headerParam(parley.HeaderTracestate, "Goes with traceparent; ignored without, and above 512 bytes or 32 members."),
	}
}

// traceOf gives the trace context of a request.
func traceOf(r *http.Request) parley.Trace {
	return parley.TraceOf(r.Header.Values(parley.HeaderTraceparent), r.Header.Values(parley.HeaderTracestate))
}

func preferParam() *huma.Param {
	return headerParam("Prefer", "wait=30 waits so many seconds for the end of the run.")
}
