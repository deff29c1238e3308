// Package schedule starts runs at times (language §8). Any number of processes may
// do so on one store: a firing is decided by moving the row of its schedule on,
// which one of them does, and its run is started under the firing's own key, so
// that whoever goes on after a crash starts none twice.
//
// A firing goes through two writes. The first decides what becomes of it, guarded
// by the count of the row's changes, and names it as the one that is being started.
// Then its run is started, as often as it takes. The second write names the run.
// Until then nothing else is decided about the schedule.
package schedule
