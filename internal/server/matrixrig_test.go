package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/server"
	"github.com/parley-project/parley/internal/store"
)

const (
	// matrixLease is the lease in the matrix, and matrixStopped how long a process is
	// stopped that nobody watches.
	matrixLease   = 2 * time.Second
	matrixStopped = 2 * matrixLease
	// matrixSweeps is how long others have for what a dead bridge leaves.
	matrixSweeps = 1500 * time.Millisecond
	// matrixGrace is how long a cancelled run waits for its agents.
	matrixGrace = 300 * time.Millisecond
	// matrixHaste is that where the end of the grace is to come before the bridge has
	// cut its call.
	matrixHaste = 20 * time.Millisecond
	// matrixSession is how long a member of a consumer group may be silent.
	matrixSession = 3 * time.Second
	// matrixWithin bounds each wait of a case, on a machine that is busy.
	matrixWithin = 90 * time.Second
)

// matrix is what the cases of the failpoint matrix share: a PostgreSQL, databases
// that know agents and workflows, and the agents.
type matrix struct {
	t      *testing.T
	web    *matrixWeb
	pg     *pgtest.Server
	folder string // the data folder of an embedded server that has ended

	mu   sync.Mutex // protects what follows
	free []string   // databases that nobody uses
	made int
	// topics are those of a database's processes, where Kafka is between them.
	topics map[string]kafka.Config
	cases  int
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	m := &matrix{
		t: t, web: &matrixWeb{agents: map[string]*matrixAgent{}}, folder: filepath.Join(t.TempDir(), "data"), topics: map[string]kafka.Config{},
	}
	web := httptest.NewServer(m.web)
	t.Cleanup(web.Close)
	m.pg = pgtest.Start(t, pgtest.Options{Settings: map[string]string{"max_connections": "800", "shared_buffers": "64MB"}})
	m.pg.Exec("CREATE DATABASE seed")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "agents.yaml"), matrixAgents(web.URL))
	for name, doc := range matrixWorkflows() {
		write(t, filepath.Join(dir, "flows", name+".yaml"), doc)
	}
	for _, cfg := range []server.Config{
		{Data: m.folder}, {Data: filepath.Join(dir, "data"), DatabaseURL: parley.NewSecret([]byte(m.pg.URL("seed")))},
	} {
		cfg.Listen, cfg.EgressAllow = "127.0.0.1:0", []string{"127.0.0.0/8"}
		cfg.AgentFiles, cfg.WorkflowDirs = []string{filepath.Join(dir, "agents.yaml")}, []string{filepath.Join(dir, "flows")}
		seed(t, cfg)
	}
	return m
}

// seed has a server declare what its configuration names, and waits until nothing of
// that is left to be done.
func seed(t *testing.T, cfg server.Config) {
	t.Helper()
	target := filepath.Join(cfg.Data, "parley.db")
	if !cfg.DatabaseURL.IsZero() {
		target = string(cfg.DatabaseURL.Reveal())
	}
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	db, err := store.Open(t.Context(), target, store.Options{})
	for left, deadline := 1, time.Now().Add(matrixWithin); err == nil && left > 0 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var changes []store.WorkflowChange
		changes, err = db.WorkflowChanges(t.Context(), "", 1)
		left = len(changes)
	}
	stop()
	if err = errors.Join(err, <-ended); db != nil {
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// database gives one that nobody uses, with no bridge in it.
func (m *matrix) database() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.free); n > 0 {
		name := m.free[n-1]
		m.free = m.free[:n-1]
		return name
	}
	m.made++
	name := fmt.Sprint("m", m.made)
	m.pg.Exec("CREATE DATABASE " + name + " TEMPLATE seed")
	return name
}

// kafkaFor gives the topics of a database's processes, which are made once.
func (m *matrix) kafkaFor(database string) kafka.Config {
	m.mu.Lock()
	cfg, ok := m.topics[database]
	m.mu.Unlock()
	if !ok {
		cfg, _ = onKafka(m.t)
		cfg.SessionTimeout = matrixSession
		m.mu.Lock()
		m.topics[database] = cfg
		m.mu.Unlock()
	}
	return cfg
}

// giveBack lets others use a database whose runs have all ended.
func (m *matrix) giveBack(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, m.pg.URL(name))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "DELETE FROM worker")
	if err = errors.Join(err, conn.Close(ctx)); err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.free = append(m.free, name)
	}
	return err
}

// matrixRig is the processes of one case on one database.
type matrixRig struct {
	t     *testing.T
	m     *matrix
	c     matrixCase
	s     scenario
	id    string
	dir   string
	agent *matrixAgent
	db    *store.DB
	base  server.Config
	// traps are those of the case, the last one is its own.
	traps []*trap

	ctx  context.Context //nolint:containedctx // it is the case's
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex // protects what follows
	nodes map[string]*matrixNode
	lives []*life
	beats []time.Time // when this process could run, matrixBeat apart at best
	// runID is the case's run; before are its attempts, and executed how often the agent had
	// each of them, when the fault had happened to a process.
	runID    string
	before   map[string]store.Attempt
	executed map[string]int
}

// matrixNode is a process that somebody starts again whenever it ends.
type matrixNode struct {
	name   string
	roles  []server.Role
	server *server.Server // nil while there is none
}

func newMatrixRig(t *testing.T, m *matrix, c matrixCase) *matrixRig {
	t.Helper()
	m.mu.Lock()
	m.cases++
	id := fmt.Sprint("case", m.cases)
	m.mu.Unlock()
	r := &matrixRig{t: t, m: m, c: c, id: id, s: scenarioOf(c), dir: t.TempDir(), agent: newMatrixAgent(), nodes: map[string]*matrixNode{}}
	r.ctx, r.stop = context.WithCancel(t.Context())
	r.wg.Go(r.beat)
	r.base = server.Config{
		Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"},
		DrainGrace: 50 * time.Millisecond, CancelGrace: matrixGrace, Lease: matrixLease,
		Readers: 2, Writers: 2,
	}
	if strings.HasPrefix(c.point, "P14.") {
		r.base.CancelGrace = matrixHaste
	}
	database := ""
	target := filepath.Join(r.dir, "m1", "parley.db")
	if c.layout == layoutSQLite {
		if err := os.CopyFS(filepath.Join(r.dir, "m1"), os.DirFS(m.folder)); err != nil {
			t.Fatal(err)
		}
	} else {
		database = m.database()
		target = m.pg.URL(database)
		r.base.DatabaseURL = parley.NewSecret([]byte(target))
	}
	if c.layout == layoutKafka {
		topics := m.kafkaFor(database)
		r.base.Kafka, r.base.BridgeGroup, r.base.ExecutorGroup = &topics, id+"-bridges-"+database, id+"-executors-"+database
	}
	own := newTrap(c.point, c.kind)
	own.stopped, own.wire, own.seen = r.outlast, c.layout != layoutSQLite, r.look
	if r.s.before != "" {
		r.traps = append(r.traps, newTrap(r.s.before, faultKill))
	}
	r.traps = append(r.traps, own)
	var err error
	if r.db, err = store.Open(t.Context(), target, store.Options{Readers: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.close()
		if err := r.db.Close(); err != nil {
			t.Error(err)
		}
		if database != "" && !t.Failed() {
			if err := m.giveBack(context.WithoutCancel(t.Context()), database); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// own is the case's trap.
func (r *matrixRig) own() *trap { return r.traps[len(r.traps)-1] }

// close ends all processes.
func (r *matrixRig) close() {
	r.mu.Lock()
	for _, l := range r.lives {
		l.cont()
	}
	r.mu.Unlock()
	r.stop()
	r.wg.Wait()
}

// matrixBeat is how often a rig looks whether its process can run.
const matrixBeat = 20 * time.Millisecond

func (r *matrixRig) beat() {
	for tick := time.NewTicker(matrixBeat); ; { // of late ticks only one is kept
		select {
		case <-tick.C:
			r.mu.Lock()
			r.beats = append(r.beats, time.Now())
			r.mu.Unlock()
		case <-r.ctx.Done():
			tick.Stop()
			return
		}
	}
}

// ran is for how long this process could run between two moments: what a slow machine takes
// from it does not count.
func (r *matrixRig) ran(from, to time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var sum time.Duration
	for _, at := range r.beats {
		if at.After(from) && !at.After(to) {
			sum += matrixBeat
		}
	}
	return sum
}

// look notes how the attempts stand when a process has just died or stopped.
func (r *matrixRig) look() {
	r.mu.Lock()
	run := r.runID
	r.mu.Unlock()
	before, executed := map[string]store.Attempt{}, map[string]int{}
	if run != "" {
		rows, err := r.db.Attempts(r.ctx, run)
		if err != nil {
			r.t.Errorf("looking at the attempts: %v", err)
		}
		for i := range rows {
			before[rows[i].ID], executed[rows[i].ID] = rows[i], len(r.agent.executions(rows[i].ID))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before, r.executed = before, executed
}

// watched reports whether others see that a process is stopped: it is a bridge that
// has registered, and not the only process.
func (r *matrixRig) watched(l *life) bool {
	return r.c.point != "P16.before" && r.c.layout != layoutSQLite && !strings.Contains(l.name, ".x") && l.passes("P16.after") > 0
}

// outlast returns when a stopped process has been so for longer than its lease, and
// the others have seen that, and done what follows from it.
func (r *matrixRig) outlast(l *life) {
	if !r.watched(l) {
		r.sleep(matrixStopped)
		return
	}
	conn, err := pgx.Connect(r.ctx, string(r.base.DatabaseURL.Reveal()))
	for dead, deadline := 0, time.Now().Add(matrixWithin/2); err == nil && dead == 0 && time.Now().Before(deadline); r.sleep(100 * time.Millisecond) {
		err = conn.QueryRow(r.ctx, "SELECT dead FROM worker WHERE name = $1", strings.Split(l.name, ".")[1]).Scan(&dead)
	}
	r.sleep(matrixSweeps)
	if conn != nil {
		err = errors.Join(err, conn.Close(context.WithoutCancel(r.ctx)))
	}
	if err != nil && r.ctx.Err() == nil {
		r.t.Errorf("watching the bridges: %v", err)
	}
}

// sleep lets time pass, unless the case is over.
func (r *matrixRig) sleep(d time.Duration) {
	select {
	case <-r.ctx.Done():
	case <-time.After(d):
	}
}

// begin has a process run, and waits until it does if it can.
func (r *matrixRig) begin(name string, roles ...server.Role) {
	n := &matrixNode{name: name, roles: roles}
	r.mu.Lock()
	r.nodes[name] = n
	r.mu.Unlock()
	began := make(chan struct{})
	r.wg.Go(func() { r.keep(n, began) })
	select {
	case <-began:
	case <-r.own().sprung:
	case <-time.After(matrixWithin):
		r.t.Errorf("%s does not start", name)
	}
}

// keep starts a process, and again when it has ended.
func (r *matrixRig) keep(n *matrixNode, began chan struct{}) {
	for number := 1; r.ctx.Err() == nil; number++ {
		l := newLife(fmt.Sprintf("%s.%s.%d", r.id, n.name, number), r.traps, r.s.aside)
		r.m.web.meet(r.agent, l)
		r.mu.Lock()
		r.lives = append(r.lives, l)
		r.mu.Unlock()
		if err := r.live(n, l, began); err != nil && r.ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
		if r.s.heir && n.name == "b1" {
			return // it stays dead
		}
	}
}

// live is one process from start to end.
func (r *matrixRig) live(n *matrixNode, l *life, began chan struct{}) error {
	cfg := r.base
	cfg.Data, cfg.Roles, cfg.Instance, cfg.Version = filepath.Join(r.dir, n.name), n.roles, n.name, l.name
	cfg.Failpoint, cfg.Dial = l.hit, l.dial
	if r.base.Kafka != nil {
		kafka := *r.base.Kafka
		kafka.InstanceID = n.name
		cfg.Kafka = &kafka
	}
	s, err := server.New(r.ctx, cfg)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(r.ctx)
	defer end()
	set := func(to *server.Server) {
		r.mu.Lock()
		defer r.mu.Unlock()
		n.server = to
	}
	go func() {
		select {
		case <-l.died:
			set(nil)
			end()
		case <-s.Started():
			set(s)
			select {
			case <-began:
			default:
				close(began)
			}
			select {
			case <-l.died:
				set(nil)
				end()
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
	}()
	err = s.Run(ctx)
	set(nil)
	return err
}

// api gives a process that takes requests, when there is one.
func (r *matrixRig) api() *server.Server {
	for deadline := time.Now().Add(matrixWithin); time.Now().Before(deadline) && r.ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		r.mu.Lock()
		for _, name := range []string{"x1", "m1", "x2", "m2"} {
			if n := r.nodes[name]; n != nil && n.server != nil {
				s := n.server
				r.mu.Unlock()
				return s
			}
		}
		r.mu.Unlock()
	}
	r.t.Fatalf("no process takes requests\n%s", r.traces())
	return nil
}

// insist repeats a request until it was taken.
func (r *matrixRig) insist(what string, request func(*server.Server) error) {
	var err error
	for deadline := time.Now().Add(matrixWithin); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = request(r.api()); err == nil {
			return
		}
	}
	r.t.Fatalf("%s: %v\n%s", what, err, r.traces())
}

// start starts a run of a workflow of the case's policy, once.
func (r *matrixRig) start(workflow, key string) (id string) {
	r.insist("start", func(s *server.Server) error {
		run, _, err := s.Executor().Start(r.ctx, parley.StartRequest{
			Workflow: workflow + "-" + r.c.policy, Input: []byte(`{}`), IdempotencyKey: r.id + key,
		})
		id = run.ID
		return err
	})
	return id
}

// control asks for something about a run until that is done, or the run has ended.
func (r *matrixRig) control(what, id string, request func(*server.Server) error) {
	r.insist(what, func(s *server.Server) error {
		err := request(s)
		if row, failed := r.db.RunRow(r.ctx, id); err != nil && failed == nil && row.Status.Terminal() {
			return nil
		}
		return err
	})
}

// await waits until the run has ended.
func (r *matrixRig) await(id string) {
	for deadline := time.Now().Add(3 * matrixWithin); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if row, err := r.db.RunRow(r.ctx, id); err == nil && row.Status.Terminal() {
			return
		}
	}
	rows, _ := r.db.Attempts(r.ctx, id)
	var s strings.Builder
	for i := range rows {
		fmt.Fprintf(&s, "\n%s is %s, %+v, %d orphanings, visible at %s", rows[i].ID, rows[i].State, rows[i].Claim, rows[i].Orphanings, rows[i].VisibleAt)
	}
	r.t.Fatalf("the run does not end%s\n%s", s.String(), r.traces())
}

// traces tell what each process came by.
func (r *matrixRig) traces() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s strings.Builder
	for _, l := range r.lives {
		fmt.Fprintf(&s, "%s (dead: %t): %s\n", l.name, l.isDead(), strings.Join(l.points(), " "))
	}
	return s.String()
}
