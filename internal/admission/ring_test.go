package admission_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/parley-project/parley/internal/admission"
)

// flow is an agent with tasks of given sizes, over and over.
type flow struct {
	weight  int
	costs   []int
	sent    int
	spent   int
	blocked bool
}

func (f *flow) Weight() int { return f.weight }

func (f *flow) next() int {
	if f.blocked {
		return 0
	}
	return f.costs[f.sent%len(f.costs)]
}

func (f *flow) send() { f.spent += f.next(); f.sent++ }

func drawFlow(t *rapid.T) *flow {
	return &flow{
		weight:  rapid.IntRange(1, 10).Draw(t, "weight"),
		costs:   rapid.SliceOfN(rapid.Map(rapid.Int64Range(0, 1<<20), admission.Cost), 1, 5).Draw(t, "costs"),
		blocked: rapid.IntRange(0, 4).Draw(t, "blocked") == 0,
	}
}

// TestShares: of flows that always have something to send each gets its weight's
// part, within one turn and one task, however the rounds are cut; and as long as
// one of them can send, something is sent.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r admission.Ring[*flow]
		flows := rapid.SliceOfN(rapid.Custom(drawFlow), 1, 12).Draw(t, "flows")
		flows[0].blocked = false
		for _, f := range flows {
			r.Add(f)
		}
		for range rapid.IntRange(1, 40).Draw(t, "rounds") {
			n, sent := rapid.IntRange(1, 300).Draw(t, "n"), 0
			r.Serve(n, (*flow).next, func(f *flow) {
				if f.blocked {
					t.Fatal("a flow that cannot send was sent")
				}
				f.send()
				sent++
			})
			if sent != n {
				t.Fatalf("%d of %d sent", sent, n)
			}
		}
		for _, f := range flows {
			for _, g := range flows {
				if f.blocked || g.blocked {
					continue
				}
				// Turns that each had, in tasks without content for one of weight 1.
				a, b := float64(f.spent)/float64(64*f.weight), float64(g.spent)/float64(64*g.weight)
				slack := 1 + float64(slices.Max(f.costs))/float64(64*f.weight) + 1 + float64(slices.Max(g.costs))/float64(64*g.weight)
				if a-b > slack || b-a > slack {
					t.Fatalf("%v and %v turns of weights %d and %d", a, b, f.weight, g.weight)
				}
			}
		}
	})
}

// TestRingChanges: who comes and goes takes nobody's turn away.
func TestRingChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r admission.Ring[*flow]
		stays := &flow{weight: 1, costs: []int{64}}
		r.Add(stays)
		var others []*flow
		waited := 0
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				f := drawFlow(t)
				r.Add(f)
				others = append(others, f)
			case 1:
				if len(others) > 0 {
					f := others[rapid.IntRange(0, len(others)-1).Draw(t, "gone")]
					r.Remove(func(g *flow) bool { return g == f })
					others = slices.DeleteFunc(others, func(g *flow) bool { return g == f })
				}
			case 2:
				before := stays.sent
				r.Serve(1, (*flow).next, (*flow).send)
				if waited++; stays.sent > before {
					waited = 0
				}
			}
			if seen := slices.Collect(r.Flows); len(seen) != r.Len() || len(seen) != len(others)+1 || !slices.Contains(seen, stays) {
				t.Fatalf("%d flows, want %d", len(seen), len(others)+1)
			}
			if most := 12 * (len(others) + 1); waited > most+100 {
				t.Fatalf("no turn among %d flows in %d", len(others), waited)
			}
		}
		before := stays.sent
		for range 12*(len(others)+1) + 1 {
			r.Serve(1, (*flow).next, (*flow).send)
		}
		if stays.sent == before {
			t.Fatalf("no turn among %d", len(others))
		}
	})
}

// TestRingTurnKept: who goes away moves nobody's turn.
func TestRingTurnKept(t *testing.T) {
	for gone := range 5 {
		var r admission.Ring[*flow]
		var flows, want, got []*flow
		for range 5 {
			f := &flow{weight: 1, costs: []int{64}}
			flows = append(flows, f)
			r.Add(f)
		}
		serve := func(n int) { r.Serve(n, (*flow).next, func(f *flow) { f.send(); got = append(got, f) }) }
		serve(7) // then it is the turn of the third, or still of the second, which has spent it
		got = nil
		r.Remove(func(f *flow) bool { return f == flows[gone] })
		for _, f := range []*flow{flows[2], flows[3], flows[4], flows[0], flows[1]} {
			if f != flows[gone] {
				want = append(want, f)
			}
		}
		if serve(4); !slices.Equal(got, want) {
			t.Errorf("without the flow %d others have their turns", gone)
		}
	}
}

// TestEmptyRing: nothing is sent, and nothing hangs.
func TestEmptyRing(t *testing.T) {
	var r admission.Ring[*flow]
	r.Serve(10, (*flow).next, (*flow).send)
	f := &flow{weight: 1, costs: []int{1 << 40}}
	r.Add(f)
	f.blocked = true
	r.Serve(10, (*flow).next, (*flow).send)
	r.Remove(func(*flow) bool { return true })
	r.Serve(10, (*flow).next, (*flow).send)
	if f.sent != 0 || r.Len() != 0 {
		t.Errorf("%d sent, %d flows", f.sent, r.Len())
	}
}
