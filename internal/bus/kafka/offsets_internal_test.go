package kafka

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// TestWatermark: whatever is acknowledged in whatever order, what may be
// committed is the lowest offset that is not, and held bytes are those of the
// records that are open.
func TestWatermark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPartition(place{"t", 0})
		var open []*entry
		offset := rapid.Int64Range(0, 1000).Draw(t, "start")
		next := offset
		received := make(map[int64]bool)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(open) == 0 || rapid.Bool().Draw(t, "receive") {
				offset += rapid.Int64Range(0, 2).Draw(t, "gap") // compaction leaves some out
				if e := p.receive(&kgo.Record{Offset: offset}, 10); e != nil {
					open = append(open, e)
				}
				received[offset] = true
				offset++
				next = offset
			} else {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				p.ack(open[i])
				p.ack(open[i])
				open = append(open[:i], open[i+1:]...)
			}
			want := next
			for _, e := range open {
				want = min(want, e.offset)
			}
			at, _ := p.due()
			if at.Offset > want {
				t.Fatalf("%d may be committed, and %d is open", at.Offset, want)
			}
			for o := at.Offset; o < want; o++ {
				if received[o] {
					t.Fatalf("%d may be committed, and %d is done", at.Offset, o)
				}
			}
			if p.open() != len(open) || p.bytes != int64(10*len(open)) {
				t.Fatalf("%d open with %d bytes, want %d", p.open(), p.bytes, len(open))
			}
		}
	})
}

// TestOwnership: a partition that goes lets no handler begin, waits for those
// that run, counts their acknowledgements, and says no to all later ones.
func TestOwnership(t *testing.T) {
	p := newPartition(place{"t", 0})
	var all []*entry
	for i := range 5 {
		all = append(all, p.receive(&kgo.Record{Offset: int64(i)}, 1))
	}
	if !p.begin() {
		t.Fatal("a handler may not begin")
	}
	drained := make(chan struct{})
	go func() { p.drain(make(chan struct{})); close(drained) }()
	for p.begin() { // until the drain has begun
		p.finished()
	}
	p.ack(all[0])
	select {
	case <-drained:
		t.Fatal("drained while a handler runs")
	case <-time.After(20 * time.Millisecond):
	}
	p.finished()
	<-drained
	if at, ok := p.due(); !ok || at.Offset != 1 {
		t.Errorf("%v may be committed (%v), want 1", at.Offset, ok)
	}
	if held, _ := p.close(); held != 4 {
		t.Errorf("%d bytes were held, want 4", held)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, e := range all {
		if advanced, freed := p.ack(e); advanced || freed > 0 {
			t.Error("an acknowledgement counts after the partition has moved")
		}
	}
	if _, ok := p.due(); ok || p.begin() || p.receive(&kgo.Record{Offset: 9}, 1) != nil {
		t.Error("a partition that has moved still does something")
	}
}

// TestLost: a partition that others may have already lets no handler begin, and those that
// have records of it in hand hear that; it is as if they had never come.
func TestLost(t *testing.T) {
	p := newPartition(place{"t", 0})
	p.receive(&kgo.Record{Offset: 3}, 7)
	m := newMember(t.Context(), nil)
	defer m.cancel()
	ours := p.during(m)
	if again := p.during(m); again != ours || ours.Err() != nil {
		t.Errorf("one context for all handlers of a member: %v", ours.Err())
	}
	g := &group{wake: make(chan struct{}, 1), parts: map[place]*partition{p.place: p}}
	g.bytes.Store(7)
	g.lost(t.Context(), nil, map[string][]int32{"t": {0, 1}})
	if ours.Err() == nil || p.during(m).Err() == nil || m.ctx.Err() != nil {
		t.Error("handlers are not told that the partition is gone, or those of others are")
	}
	if _, due := p.due(); due || p.begin() || !p.lost() || g.bytes.Load() != 0 || len(g.parts) != 0 {
		t.Errorf("something of it is left: %d bytes, %d partitions", g.bytes.Load(), len(g.parts))
	}
}

// TestDrainsAll: a partition that goes waits for the last of its handlers.
func TestDrainsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition(place{"t", 0})
		p.begin()
		p.begin()
		drained := make(chan struct{})
		go func() { p.drain(t.Context().Done()); close(drained) }()
		synctest.Wait()
		p.finished()
		synctest.Wait()
		select {
		case <-drained:
			t.Error("drained while a handler runs")
		default:
		}
		p.finished()
		<-drained
	})
}

// TestFirstOffset: where a group begins with the first record of all, that is committed:
// else what is published before it has read anything may be before its next beginning.
func TestFirstOffset(t *testing.T) {
	p := newPartition(place{"t", 0})
	if at, due := p.due(); due {
		t.Errorf("%d may be committed of what is not known", at.Offset)
	}
	p.startAt(0)
	if at, due := p.due(); !due || at.Offset != 0 {
		t.Errorf("%d may be committed (%t), want 0", at.Offset, due)
	}
}

// TestLogWentBack: after a leader took over that lacks records the log is followed from where
// it goes on. What was committed is committed again: else records would be left out once the
// log has grown past that.
func TestLogWentBack(t *testing.T) {
	p := newPartition(place{"t", 0})
	p.resumeAt(100)
	e := p.receive(&kgo.Record{Offset: 50}, 1)
	for _, want := range []int64{50, 51} {
		at, ok := p.due()
		if !ok || at.Offset != want {
			t.Fatalf("%d may be committed (%v), want %d", at.Offset, ok, want)
		}
		p.setCommitted(want)
		if at, ok := p.due(); ok {
			t.Fatalf("%d is to be committed though it is", at.Offset)
		}
		p.ack(e)
	}
	p.sawEnd(90)
	p.listedEnd(60, 90)
	if lag, _ := p.lag(); lag != 9 {
		t.Errorf("lag %d, want 9", lag)
	}
	p.sawEnd(70)
	p.listedEnd(65, 60) // asked for before it grew
	if lag, _ := p.lag(); lag != 19 {
		t.Errorf("lag %d, want 19", lag)
	}
}

// TestLogWentBackInHand: when the log goes back while records are in hand, those that it has
// lost hold nothing back, and move nothing on: what took their offsets is not committed before
// it is done itself. Else a process that ends then would leave it out.
func TestLogWentBackInHand(t *testing.T) {
	p := newPartition(place{"t", 0})
	p.resumeAt(100)
	var old []*entry
	for i := range int64(100) {
		old = append(old, p.receive(&kgo.Record{Offset: 100 + i}, 1))
	}
	for _, e := range old[:80] {
		p.ack(e)
	}
	due := func(want int64) {
		t.Helper()
		if at, _ := p.due(); at.Offset != want {
			t.Errorf("%d may be committed, want %d", at.Offset, want)
		}
	}
	due(180)
	p.setCommitted(180)
	e := p.receive(&kgo.Record{Offset: 150}, 1)
	if _, ok := p.due(); !ok {
		t.Error("180 stays committed, and 150 is open")
	}
	due(150)
	for _, e := range old[80:] {
		if _, freed := p.ack(e); freed != 1 {
			t.Errorf("%d bytes are given back of a record that was lost, want 1", freed)
		}
	}
	due(150)
	second := p.receive(&kgo.Record{Offset: 151}, 1)
	// It goes back into what is open, behind records that are done.
	p.ack(second)
	third := p.receive(&kgo.Record{Offset: 151}, 1)
	p.ack(e)
	due(151)
	p.ack(third)
	due(152)
	if p.bytes != 0 || p.done != 0 || len(p.entries) != 0 {
		t.Errorf("%d bytes, %d done, %d entries are left", p.bytes, p.done, len(p.entries))
	}
}

// TestBehindOpen: what is done behind a record that stays open for long takes no
// memory for each record, and counts once that one is done, too.
func TestBehindOpen(t *testing.T) {
	p := newPartition(place{"t", 0})
	first := p.receive(&kgo.Record{Offset: 0}, 1)
	const n = 100_000
	for i := range int64(n) {
		p.ack(p.receive(&kgo.Record{Offset: i + 1, LeaderEpoch: int32(i / 1000)}, 1))
	}
	if len(p.entries) > 2*entriesLeast || p.open() != 1 {
		t.Errorf("%d entries are kept, %d of them open", len(p.entries), p.open())
	}
	if at, ok := p.due(); ok {
		t.Errorf("%d may be committed, and 0 is open", at.Offset)
	}
	if advanced, _ := p.ack(first); !advanced {
		t.Error("the last acknowledgement does not count")
	}
	if at, ok := p.due(); !ok || at != (kgo.EpochOffset{Epoch: 99, Offset: n + 1}) || len(p.entries) != 0 || p.done != 0 {
		t.Errorf("%+v may be committed, %d entries are left", at, len(p.entries))
	}
}
