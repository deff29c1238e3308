package executor

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"strconv"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/workflow"
)

const (
	// Records of one run keep their order: they share a lane. A lane bounds the
	// records that wait; what comes beyond is dropped and counted.
	monitorLanes = 32
	monitorLane  = 256
	// monitorFor bounds one publication.
	monitorFor = 5 * time.Second
	// maxMonitored bounds an error's text in a record, in bytes.
	maxMonitored = 16 << 10
)

// monitor tells watchers of the existing platform what became of the agent
// steps of each run (formats.md, "Monitoring"). It is told after the events are
// durable, and never makes anybody wait. Nil tells nothing.
type monitor struct {
	x     *Executor
	seed  maphash.Seed
	lanes [monitorLanes]chan records.MonitoringUpdate
}

func newMonitor(x *Executor) *monitor {
	m := &monitor{x: x, seed: maphash.MakeSeed()}
	for i := range m.lanes {
		m.lanes[i] = make(chan records.MonitoringUpdate, monitorLane)
	}
	return m
}

// run publishes until ctx ends, and then what still waits, no longer than
// monitorFor.
func (m *monitor) run(ctx context.Context) {
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(monitorFor, cancel) })()
	var lanes sync.WaitGroup
	for _, lane := range m.lanes {
		lanes.Go(func() {
			for {
				select {
				case u := <-lane:
					m.publish(last, u)
					continue
				default:
				}
				select {
				case u := <-lane:
					m.publish(last, u)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	lanes.Wait()
}

func (m *monitor) publish(ctx context.Context, u records.MonitoringUpdate) {
	value, err := u.Encode()
	if err == nil {
		sending, cancel := context.WithTimeout(ctx, monitorFor)
		err = m.x.cfg.Bus.Publish(sending, bus.Message{Subject: bus.SubjectMonitoring, Key: u.RunID, Value: value})
		cancel()
	}
	if err != nil {
		m.x.cfg.Metrics.monitored(fateDropped)
		m.x.cfg.Logger.Debug("watchers were not told of a step", "run", u.RunID, "step", u.StepID, "error", err)
		return
	}
	m.x.cfg.Metrics.monitored(fatePublished)
}

// tell queues what watchers are told of a decision's events.
func (m *monitor) tell(s *workflow.State, events []parley.Event) {
	if m == nil {
		return
	}
	for i := range events {
		u, ok := monitored(s, &events[i])
		if !ok {
			continue
		}
		lane := maphash.String(m.seed, u.RunID) % monitorLanes
		select {
		case m.lanes[lane] <- u:
		default:
			m.x.cfg.Metrics.monitored(fateDropped)
		}
	}
}

// The metadata of the records, in the order of the existing platform.
type (
	stepMonitored struct {
		Execution string `json:"step_execution_id"`
		Task      string `json:"task_id"`
	}
	stepFailureMonitored struct {
		Execution string `json:"step_execution_id"`
		Error     string `json:"error"`
	}
	runFailureMonitored struct {
		Step  string `json:"failed_step"`
		Error string `json:"error"`
	}
)

// monitored gives the record about an event; most have none. Composite steps,
// steps that another run has done, completion and cancellation have none there
// either.
func monitored(s *workflow.State, e *parley.Event) (u records.MonitoringUpdate, ok bool) {
	u = records.MonitoringUpdate{RunID: e.Run, StepID: e.Step, StepName: s.AgentAt(e.Step), At: e.At}
	execution := e.Run + "-" + e.Step
	var meta any
	switch e.Type {
	case parley.EventStepScheduled:
		u.Status, meta = records.StatusRunning, stepMonitored{execution, taskOf(e)}
	case parley.EventStepCompleted:
		u.Status, meta = records.StatusCompleted, stepMonitored{execution, taskOf(e)}
	case parley.EventStepFailed:
		u.Status, meta = records.StatusFailed, stepFailureMonitored{execution, eventError(e).Message}
	case parley.EventRunFailed:
		err := eventError(e)
		u.StepID, u.StepName, u.Status = "workflow", s.Definition().Name, records.StatusFailed
		meta = runFailureMonitored{err.Step, err.Message}
	default:
		return u, false
	}
	if u.StepName == "" {
		return u, false
	}
	var err error
	u.Metadata, err = json.Marshal(meta)
	return u, err == nil
}

func taskOf(e *parley.Event) string { return e.Run + "." + e.Step + "." + strconv.Itoa(e.Attempt) }

// eventError is the error that an event tells of, its text cut to what a record
// holds.
func eventError(e *parley.Event) parley.Error {
	var data struct {
		Error parley.Error `json:"error"`
	}
	// Events are written by this module; one that cannot be read tells nothing.
	_ = json.Unmarshal(e.Data, &data)
	data.Error.Message = clip(data.Error.Message, maxMonitored)
	return data.Error
}
