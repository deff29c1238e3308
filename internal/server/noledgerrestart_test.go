package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/kafkatest"
)

// TestNoLedgerStops: SIGTERM with calls in flight and a queue behind them. What ends in
// the grace is answered, what has not begun is the next process's: each agent is called
// once, and there is one result of each task.
func TestNoLedgerStops(t *testing.T) {
	kafkatest.NeedServer(t)
	t.Parallel()
	const grace = 2 * time.Minute
	o := newOldSide(t, kafkatest.Brokers(t), 2, grace)
	o.start("a")
	o.send("quick", 20)
	o.send("held", 5)
	o.send("narrow", 40)
	o.awaitCalls("quick", 20)
	o.awaitCalls("held", 5)
	o.awaitCalls("narrow", 2)
	ended := o.terminate("a")
	wait(t, 500*time.Millisecond)
	o.letGo()
	if took := ended(); took > grace/2 {
		t.Errorf("it took %s, though nothing was in its way", took)
	}
	o.start("a")
	o.awaitResults()
	o.judge(atMost(1))
	o.stopAll()
}

// TestNoLedgerGivesUp: calls that outlive the grace, and those of a process that is
// killed, are made again by the next one. What was answered before them, as they lie on
// their partition, is not; behind them it may be.
func TestNoLedgerGivesUp(t *testing.T) {
	kafkatest.NeedServer(t)
	t.Parallel()
	o := newOldSide(t, kafkatest.Brokers(t), 2, time.Second)
	o.start("a")
	o.send("quick", 20)
	o.awaitResults() // and a second, for the offsets
	before := o.log.counts()
	o.send("held", 3)
	o.send("quick", 10)
	o.awaitCalls("held", 3)
	o.awaitCalls("quick", 30)
	if took := o.terminate("a")(); took < time.Second || took > time.Minute {
		t.Errorf("it took %s", took)
	}
	o.start("a")
	o.await("the second calls", func() bool { return o.log.counts()[o.sent[22]] == 2 })
	o.kill("a")
	o.start("a")
	o.letGo()
	o.awaitResults()
	o.judge(func(task string) int {
		if before[task] > 0 {
			return 1
		}
		return 3
	})
	o.stopAll()
}

// TestNoLedgerMoves: another bridge joins in the middle of calls, and takes partitions
// over. It makes the calls again that were under way there; what only waited is called
// once.
func TestNoLedgerMoves(t *testing.T) {
	kafkatest.NeedServer(t)
	t.Parallel()
	o := newOldSide(t, kafkatest.Brokers(t), 4, 5*time.Second)
	o.start("a")
	o.send("narrow", 60)
	o.send("held", 8)
	o.awaitCalls("narrow", 2)
	o.awaitCalls("held", 8)
	before := o.log.counts()
	o.start("b")
	o.await("a second call", func() bool {
		for _, n := range o.log.counts() {
			if n > 1 {
				return true
			}
		}
		return false
	})
	wait(t, 2*time.Second)
	o.letGo()
	o.awaitResults()
	o.judge(func(task string) int { return 1 + before[task] })
	o.stopAll()
}

// TestNoLedgerBrokerAway: answers wait for a broker that is away for longer than one
// publication waits. Afterwards each is there once.
func TestNoLedgerBrokerAway(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{})
	o := newOldSide(t, c.Brokers(), 2, 3*time.Second)
	o.start("a")
	o.send("held", 5)
	o.awaitCalls("held", 5)
	wait(t, time.Second)
	c.Kill(0)
	o.letGo()
	wait(t, 17*time.Second)
	c.Start(t, 0)
	o.awaitResults()
	o.judge(atMost(1))
	o.stopAll()
}

// TestNoLedgerBrokerSilent: SIGTERM while answers wait for a broker that says nothing.
// The process ends in the time that operators give it (docs/operations.md), and says
// what it has left; the next one makes those calls again.
func TestNoLedgerBrokerSilent(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{})
	const grace = 3 * time.Second
	o := newOldSide(t, c.Brokers(), 2, grace)
	p := o.start("a")
	o.send("quick", 10)
	o.awaitResults()
	o.send("held", 5)
	o.awaitCalls("held", 5)
	c.Pause(t, 0)
	o.letGo()
	wait(t, time.Second)
	took := o.end("a")
	t.Logf("it took %s", took)
	if took > 2*grace+time.Minute {
		t.Errorf("it took %s with a grace of %s:\n%s", took, grace, p.output)
	}
	if !strings.Contains(p.output.String(), "the bridge is being stopped") {
		t.Errorf("nothing says that results were not written:\n%s", p.output)
	}
	c.Continue(t, 0)
	o.start("a")
	o.awaitResults()
	o.judge(func(task string) int {
		if strings.HasPrefix(task, "quick") {
			return 1
		}
		return 2
	})
	o.stopAll()
}
