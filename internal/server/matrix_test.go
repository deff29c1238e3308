package server_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
	"github.com/parley-project/parley/internal/store"
)

// The layouts of the failpoint matrix: executor and bridge in processes of their own
// on PostgreSQL (SQLite has one process, see TestRolesWithoutDatabase), with its
// notifications or Kafka between them; both in one process on PostgreSQL, and both in one
// on SQLite.
const (
	layoutApart    = "apart"
	layoutKafka    = "kafka"
	layoutPostgres = "postgres"
	layoutSQLite   = "sqlite"
)

// matrixCase is one fault at one point.
type matrixCase struct {
	layout string
	kind   faultKind
	policy string
	point  string
}

func (c matrixCase) String() string {
	return strings.Join([]string{c.layout, string(c.kind), c.policy, c.point}, "/")
}

// apart reports whether executor and bridge are processes of their own.
func (c matrixCase) apart() bool { return c.layout == layoutApart || c.layout == layoutKafka }

var (
	matrixPolicies = []string{"fail", "lookup", "resend"}
	// between are the moments between two commits, or within what an agent is told
	// and tells (protocol.md §9).
	between = []string{
		"P2.before-publish", "claim.before-guard", "guard.before-send", "sent", "head", "answer.before-P7", "P7.before-wakeup",
		"follow.before-P6", "follow.after-P6", "poll.before", "subscribe.before", "stream.event",
	}
)

// commits are the points before and after the commits P1 to P17.
func commits(moment string) (points []string) {
	for n := 1; n <= 17; n++ {
		points = append(points, fmt.Sprintf("P%d.%s", n, moment))
	}
	return points
}

// possible reports whether a case can come about at all.
func (c matrixCase) possible() bool {
	name, _, _ := strings.Cut(c.point, ".")
	switch {
	case name == "P10":
		return c.policy == "fail" // it is what that policy means
	case name == "merged":
		return !c.apart()
	case c.point == "P7.before-wakeup":
		return c.apart() || c.kind == faultKill
	}
	return true
}

// matrixWhole has TestFailpointMatrix go through every policy and layout.
var matrixWhole = flag.Bool("server.matrix", false, "each fault under every policy and in every layout, instead of one of them")

// matrixCases are all faults at all points: a kill under every policy where executor
// and bridge are apart and where they are one on SQLite, and the other faults under
// fail, which never repeats a call, and resend, which does. If it is not to be the whole,
// the policies take turns, and the layouts that the others are made of are left out.
func matrixCases(whole bool) (cases []matrixCase) {
	add := func(layout string, kind faultKind, policies, points []string) {
		for i, point := range points {
			these := policies
			if !whole {
				these = policies[i%len(policies):][:1]
			}
			for _, policy := range these {
				if c := (matrixCase{layout, kind, policy, point}); c.possible() {
					cases = append(cases, c)
				}
			}
		}
	}
	two := []string{"fail", "resend"}
	all := slices.Concat(commits("before"), commits("after"), between)
	merged := []string{"merged.before", "merged.after"}
	add(layoutApart, faultKill, matrixPolicies, all)
	add(layoutSQLite, faultKill, matrixPolicies, slices.Concat(all, merged))
	add(layoutKafka, faultKill, []string{"resend", "fail", "lookup"}, slices.Concat(commits("after"), between))
	add(layoutApart, faultStop, []string{"fail"}, commits("before"))
	add(layoutApart, faultStop, []string{"resend"}, slices.Concat(commits("after"), between))
	// The trap of a reply that is lost on its way is before the commit.
	add(layoutApart, faultLost, two, commits("before"))
	add(layoutApart, faultDelayed, two, commits("before"))
	add(layoutSQLite, faultLost, two, append(commits("after"), "merged.after"))
	add(layoutPostgres, faultDelayed, []string{"resend"}, merged[:1])
	if !whole {
		return cases
	}
	add(layoutPostgres, faultKill, []string{"fail"}, slices.Concat(commits("before"), commits("after"), merged))
	add(layoutApart, faultStop, []string{"fail"}, between)
	add(layoutKafka, faultKill, matrixPolicies, commits("before"))
	add(layoutKafka, faultStop, []string{"fail"}, slices.Concat(commits("after"), between))
	add(layoutKafka, faultStop, []string{"resend"}, commits("before"))
	add(layoutKafka, faultLost, two, commits("before"))
	add(layoutKafka, faultDelayed, []string{"resend"}, commits("before"))
	add(layoutSQLite, faultStop, []string{"fail"}, slices.Concat(commits("before"), between, merged))
	add(layoutPostgres, faultStop, []string{"resend"}, slices.Concat(commits("after"), merged))
	add(layoutPostgres, faultLost, []string{"fail"}, append(commits("before"), "merged.before"))
	add(layoutPostgres, faultDelayed, []string{"resend"}, commits("before"))
	return cases
}

// matrixAtOnce is how many cases run side by side: they mostly wait, but not alone.
const matrixAtOnce = 8

// TestFailpointMatrix has each fault happen at each point of the hand-off: before and
// after each of the commits P1 to P17, and between them. Processes are killed; stopped
// past their lease, and continued; the reply to a commit is lost; or it is lost and
// the commit arrives later than the look at what became of it (on PostgreSQL: SQLite
// has nothing that could arrive later). Then the run ends, once, and the agents' log
// and the history are held to the invariants of protocol.md §5.
func TestFailpointMatrix(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	var wg sync.WaitGroup
	places := make(chan struct{}, matrixAtOnce)
	for _, c := range matrixCases(*matrixWhole) {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			t.Run(c.String(), func(t *testing.T) { newMatrixRig(t, m, c).run() })
		})
	}
	wg.Wait()
}

// run brings the case about and judges it.
func (r *matrixRig) run() {
	own := r.own()
	if strings.HasPrefix(r.c.point, "P16.") || r.s.before == "" && r.s.armed {
		own.arm()
	}
	if r.s.before != "" {
		r.traps[0].arm()
	}
	r.beginAll()
	if r.s.before == "" {
		own.arm()
	}
	id := r.start(r.s.workflow, "")
	r.mu.Lock()
	r.runID = id
	r.mu.Unlock()
	if r.s.before != "" {
		r.follow(r.traps[0])
		own.arm()
		if r.s.heir {
			r.begin("b2", server.RoleBridge)
		}
	}
	if r.s.drive != nil {
		r.s.drive(r, id)
	}
	if r.c.avoidable() && r.overtaken(own, id) {
		r.judge(id)
		return
	}
	r.follow(own)
	r.await(id)
	victim := own.caught()
	switch r.c.kind {
	case faultStop:
		<-own.over
		r.awaitLife(victim)
	case faultLost, faultDelayed:
		if own.wire {
			r.awaitLoss(victim)
		}
		if r.c.kind == faultDelayed {
			time.Sleep(2 * lateCommit)
		}
	case faultKill:
	}
	r.judge(id)
	// Whoever is there goes on to work.
	after := r.start("two", "after")
	r.await(after)
	r.judgeQuiet(after)
	if r.t.Failed() {
		r.t.Log(r.traces())
	}
}

// follow waits until a trap has sprung.
func (r *matrixRig) follow(t *trap) {
	select {
	case <-t.sprung:
	case <-time.After(matrixWithin):
		r.t.Fatalf("nobody came by %s\n%s", t.point, r.traces())
	}
}

// avoidable reports whether a run can end without the case's point. A bridge may settle
// its attempt before the grace is over, so that P14 is refused, as it has to be. It may
// find an attempt that nobody has announced on Kafka, where P2 is after something that
// was held back.
func (c matrixCase) avoidable() bool {
	return c.point == "P14.after" || c.layout == layoutKafka && strings.HasPrefix(c.point, "P2.")
}

// overtaken reports whether the run has ended without the case's trap.
func (r *matrixRig) overtaken(own *trap, id string) bool {
	r.await(id)
	select {
	case <-own.sprung:
		return false
	case <-time.After(time.Second): // the trap is behind the commit that ends the run
		return true
	}
}

// beginAll starts the processes: one of each, or two where the other goes on while
// one is stopped.
func (r *matrixRig) beginAll() {
	all := []server.Role{server.RoleAPI, server.RoleExecutor, server.RoleBridge}
	second := r.c.kind == faultStop && r.c.layout != layoutSQLite
	if !r.c.apart() {
		r.begin("m1", all...)
		if second {
			r.begin("m2", all...)
		}
		return
	}
	r.begin("x1", server.RoleExecutor)
	r.begin("b1", server.RoleBridge)
	switch {
	case !second:
	case r.c.deciding():
		r.begin("x2", server.RoleExecutor)
	default:
		r.begin("b2", server.RoleBridge)
	}
}

// deciding reports whether it is executors that come by the point.
func (c matrixCase) deciding() bool {
	name, _, _ := strings.Cut(c.point, ".")
	if name == "P2" && c.layout == layoutKafka {
		return true // whoever shares a bus with the bridges announces
	}
	return slices.Contains([]string{"P1", "P10", "P11", "P12", "P13", "P14", "P15", "P17"}, name)
}

// awaitLife gives a process that goes on the time to do what it still wants to do: a
// bridge finds itself dead, and begins anew.
func (r *matrixRig) awaitLife(l *life) {
	for deadline := time.Now().Add(matrixWithin / 3); r.watched(l) && l.passes("P16.after") < 2; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Errorf("%s was not taken for dead", l.name)
			break
		}
	}
	time.Sleep(500 * time.Millisecond)
}

// awaitLoss waits until a commit has lost its reply. The trap is before the commit, and
// the run may have ended before that, so there is nothing else that could be waited for.
func (r *matrixRig) awaitLoss(l *life) {
	for deadline := time.Now().Add(matrixWithin / 3); l.lostReplies() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Errorf("no commit of %s has lost its reply", l.name)
			return
		}
	}
}

// matrixAgents are the agents of the matrix, for each policy.
func matrixAgents(url string) string {
	var s strings.Builder
	s.WriteString("agents:\n")
	for _, policy := range matrixPolicies {
		for name, more := range map[string]string{"one": "", "live": "", "narrow": ", limits: {concurrency: 1, queue: 1}"} {
			stream := "off"
			if name == "live" {
				stream = "on"
			}
			fmt.Fprintf(&s, "  - {name: %s-%s, url: %q, protocol: jsonrpc-2.0, outcome_unknown: %s, retry: {max_retries: 0}, "+
				"protocol_config: {a2a: \"1.0\", stream: \"%s\"}%s}\n", name, policy, url, policy, stream, more)
		}
	}
	return s.String()
}

// matrixWorkflows are the workflows of the matrix, for each policy.
func matrixWorkflows() map[string]string {
	docs := map[string]string{}
	for _, p := range matrixPolicies {
		one := func(text, more string) string {
			return fmt.Sprintf("  - {id: a, agent: one-%s, input: {text: %s}%s}\n", p, text, more)
		}
		for name, steps := range map[string]string{
			"two":     one("quick", "") + fmt.Sprintf("  - {id: b, agent: one-%s, input: {text: quick}}\n", p),
			"long":    one("long", ""),
			"live":    fmt.Sprintf("  - {id: a, agent: live-%s, input: {text: long}}\n", p),
			"slow":    one("slow", "") + fmt.Sprintf("  - {id: b, agent: one-%s, input: {text: quick}}\n", p),
			"cut":     one("cut", ""),
			"busy":    one("busy", ""),
			"hang":    one("hang", ""),
			"timeout": one("hang", ", timeout: 900ms"),
			"crowd": "  - id: all\n    parallel:\n" + strings.ReplaceAll("      - {id: a, AT}\n      - {id: b, AT}\n      - {id: c, AT}\n      - {id: d, AT}\n",
				"AT", "agent: narrow-"+p+", input: {text: slower}"),
		} {
			docs[name+"-"+p] = "name: " + name + "-" + p + "\nsteps:\n" + steps
		}
	}
	return docs
}

// scenario is how a point is come by.
type scenario struct {
	workflow string
	// before is where a process is killed before the case's own trap is armed; heir:
	// it stays dead, and another one takes its place.
	before string
	heir   bool
	// armed: the trap is armed before anything begins.
	armed bool
	// drive is what people do, beside the start of the run.
	drive func(r *matrixRig, id string)
	// aside is done by a process that comes by a point.
	aside func(l *life, point string)
	// ends are the ways in which the run may end without the fault, besides
	// completed; "" is that alone.
	ends parley.Code
}

// scenarioOf gives the one that leads to the case's point.
func scenarioOf(c matrixCase) scenario {
	name, _, _ := strings.Cut(c.point, ".")
	embedded := !c.apart()
	switch name {
	case "P2":
		switch {
		case c.layout == layoutKafka:
			return scenario{workflow: "slow", drive: holdsBack} // what is due at once is announced with its insertion
		case embedded:
			return scenario{workflow: "crowd"} // what has a slot is claimed at once
		}
	case "P3":
		return scenario{workflow: "crowd"}
	case "P5":
		return scenario{workflow: "two", aside: lateForGuard()}
	case "P6", "follow", "poll":
		return scenario{workflow: "long"}
	case "subscribe", "stream":
		return scenario{workflow: "live"}
	case "P8":
		return map[string]scenario{
			"fail":   {workflow: "cut", ends: parley.CodeOutcomeUnknown},
			"lookup": {workflow: "busy", ends: parley.CodeAgentUnavailable},
			"resend": {workflow: "cut"},
		}[c.policy]
	case "P9":
		if c.policy == "fail" {
			return scenario{workflow: "long", before: "poll.before"}
		}
		return scenario{workflow: "slow", before: "sent"}
	case "P10":
		return scenario{workflow: "slow", before: "sent", ends: parley.CodeOutcomeUnknown}
	case "P12":
		return scenario{workflow: "timeout", ends: parley.CodeTimeout}
	case "P13", "P14":
		return scenario{workflow: "hang", ends: parley.CodeCancelled, drive: cancels}
	case "P15":
		return scenario{workflow: "slow", drive: pauses}
	case "P17":
		if embedded {
			return scenario{workflow: "two", aside: silent}
		}
		return scenario{workflow: "slow", before: "sent", heir: true}
	}
	return scenario{workflow: "two"}
}

// lateForGuard lets a process take too long between its first claim and the guard,
// which refuses the call.
func lateForGuard() func(*life, string) {
	var once sync.Once
	return func(_ *life, point string) {
		if point == "claim.before-guard" {
			once.Do(func() { time.Sleep(2100 * time.Millisecond) })
		}
	}
}

// silent keeps the first bridge from beating until it was declared dead by its own process.
func silent(l *life, point string) {
	for point == "beat.before" && strings.HasSuffix(l.name, ".1") && l.passes("P17.before") == 0 && !l.isDead() {
		time.Sleep(20 * time.Millisecond)
	}
}

// cancels waits until the agent has the task, and cancels the run.
func cancels(r *matrixRig, id string) {
	for deadline := time.Now().Add(matrixWithin); len(r.agent.executions(id+".a.1")) == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	r.control("cancel", id, func(s *server.Server) error {
		_, err := s.Executor().Cancel(r.ctx, parley.CancelRequest{Run: id, By: "ann"})
		return err
	})
}

// holdsBack pauses the run and resumes it when its next attempt is held back.
func holdsBack(r *matrixRig, id string) {
	ask := parley.ControlRequest{Run: id, By: "ann"}
	r.control("pause", id, func(s *server.Server) error { _, err := s.Executor().Pause(r.ctx, ask); return err })
	for deadline := time.Now().Add(matrixWithin); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		rows, err := r.db.Attempts(r.ctx, id)
		if err == nil && slices.ContainsFunc(rows, func(a store.Attempt) bool { return a.Step == "b" }) {
			break
		}
	}
	r.control("resume", id, func(s *server.Server) error { _, err := s.Executor().Resume(r.ctx, ask); return err })
}

// pauses pauses the run and resumes it.
func pauses(r *matrixRig, id string) {
	ask := parley.ControlRequest{Run: id, By: "ann"}
	r.control("pause", id, func(s *server.Server) error { _, err := s.Executor().Pause(r.ctx, ask); return err })
	r.control("resume", id, func(s *server.Server) error { _, err := s.Executor().Resume(r.ctx, ask); return err })
}
