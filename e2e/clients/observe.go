package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"
)

const (
	// end is the object after which a test writes no more.
	end = "end"
	// pageSize makes many pages of a few dozen objects.
	pageSize = 7
	// watchSeconds ends watches so soon that a run of some seconds sees several of them go over into the next. A watch of less
	// than a second without an event would make a reflector list again.
	watchSeconds = 2
)

// object is what of an object can be compared with what others saw of it.
type object struct {
	Name    string `json:"name"`
	Version string `json:"resourceVersion"`
	Marker  string `json:"marker"`
}

func toObject(from any) object {
	if tombstone, ok := from.(cache.DeletedFinalStateUnknown); ok {
		from = tombstone.Obj
	}
	accessor, err := meta.Accessor(from)
	if err != nil {
		panic(err)
	}
	return object{accessor.GetName(), accessor.GetResourceVersion(), accessor.GetLabels()["marker"]}
}

func toObjects(from []any) []object {
	objects := []object{}
	for _, one := range from {
		objects = append(objects, toObject(one))
	}
	slices.SortFunc(objects, func(a, b object) int { return strings.Compare(a.Name, b.Name) })
	return objects
}

// briefly ends watches soon. Informers ask for an end in any case, and only of watches.
func briefly(options *metav1.ListOptions) {
	if options.TimeoutSeconds != nil {
		options.TimeoutSeconds = ptr.To(int64(watchSeconds))
	}
}

// observer tells what a program is told, until the last object came.
type observer struct {
	ended    chan struct{}
	endsOnce sync.Once
}

func newObserver() *observer {
	return &observer{ended: make(chan struct{})}
}

func (o *observer) replace(version string, objects []object) {
	tell(map[string]any{"list": objects, "resourceVersion": version})
	for _, one := range objects {
		o.look(one)
	}
}

func (o *observer) event(kind string, one object, initial bool) {
	tell(map[string]any{"event": kind, "object": one, "initial": initial})
	o.look(one)
}

func (o *observer) look(one object) {
	if one.Name == end {
		o.endsOnce.Do(func() { close(o.ended) })
	}
}

func (o *observer) wait(ctx context.Context) error {
	select {
	case <-o.ended:
		return nil
	case <-ctx.Done():
		return errors.New("the last object never came")
	}
}

// recorder is a reflector's store that tells what it is given.
type recorder struct {
	observer *observer
}

func (r recorder) Add(one any) error {
	r.observer.event(string(watch.Added), toObject(one), false)
	return nil
}

func (r recorder) Update(one any) error {
	r.observer.event(string(watch.Modified), toObject(one), false)
	return nil
}

func (r recorder) Delete(one any) error {
	r.observer.event(string(watch.Deleted), toObject(one), false)
	return nil
}

func (r recorder) Replace(all []any, version string) error {
	r.observer.replace(version, toObjects(all))
	return nil
}

func (r recorder) Resync() error { return nil }

// reflect runs a reflector, which lists or streams the list as the feature gate WatchListClient says.
func reflect(ctx context.Context, clients *clients, kind, namespace string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listWatch, err := newListWatch(clients, kind, namespace)
	if err != nil {
		return err
	}
	observer := newObserver()
	reflector := cache.NewReflectorWithOptions(listWatch, nil, recorder{observer}, cache.ReflectorOptions{TypeDescription: "configmaps"})
	go reflector.RunWithContext(ctx)
	return observer.wait(ctx)
}

// inform runs a shared informer, and tells of what its handler is told and what its store has in the end.
func inform(ctx context.Context, clients *clients, kind, namespace string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	informer, err := newInformer(clients, kind, namespace, briefly)
	if err != nil {
		return err
	}
	observer := newObserver()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(one any, initial bool) { observer.event(string(watch.Added), toObject(one), initial) },
		UpdateFunc: func(_, one any) { observer.event(string(watch.Modified), toObject(one), false) },
		DeleteFunc: func(one any) { observer.event(string(watch.Deleted), toObject(one), false) },
	}); err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	if err := observer.wait(ctx); err != nil {
		return err
	}
	tell(map[string]any{"store": toObjects(informer.GetStore().List())})
	return nil
}

// retry lists and goes on with a RetryWatcher.
func retry(ctx context.Context, clients *clients, kind, namespace string) error {
	listWatch, err := newListWatch(clients, kind, namespace)
	if err != nil {
		return err
	}
	list, err := listWatch.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return watchFrom(ctx, list, listWatch)
}

// page lists in pages, once at one go and once item by item, and goes on with a RetryWatcher.
func page(ctx context.Context, clients *clients, kind, namespace string) error {
	listWatch, err := newListWatch(clients, kind, namespace)
	if err != nil {
		return err
	}
	pages := pager.New(listWatch.ListWithContext)
	pages.PageSize = pageSize
	// A token that expires would be a fault here, and not a reason to list everything at once.
	pages.FullListIfExpired = false
	seen := map[string]bool{}
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		if name := toObject(item).Name; seen[name] {
			return fmt.Errorf("%s was on two pages", name)
		} else {
			seen[name] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	list, paginated, err := pages.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if !paginated {
		return errors.New("the list came in one page")
	}
	return watchFrom(ctx, list, listWatch)
}

// watchFrom tells of the list and then of the events after it.
func watchFrom(ctx context.Context, list runtime.Object, listWatch *cache.ListWatch) error {
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	all := []any{}
	for _, item := range items {
		all = append(all, item)
	}
	observer := newObserver()
	observer.replace(accessor.GetResourceVersion(), toObjects(all))
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, accessor.GetResourceVersion(), listWatch)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		observer.event(string(event.Type), toObject(event.Object), false)
		select {
		case <-observer.ended:
			return nil
		default:
		}
	}
	return errors.New("the RetryWatcher ended")
}

// newListWatch reads as one of the clients does.
func newListWatch(clients *clients, kind, namespace string) (*cache.ListWatch, error) {
	switch kind {
	case "typed":
		return listWatchOf(clients.typed.CoreV1().ConfigMaps(namespace)), nil
	case "json":
		return listWatchOf(clients.json.CoreV1().ConfigMaps(namespace)), nil
	case "dynamic":
		return listWatchOf(clients.dynamic.Resource(configMapResource).Namespace(namespace)), nil
	case "metadata":
		return listWatchOf(clients.metadata.Resource(configMapResource).Namespace(namespace)), nil
	}
	return nil, fmt.Errorf("no client %q: say typed, json, dynamic or metadata", kind)
}

// reader is what all clients have in common; each has its own type of list.
type reader[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

func listWatchOf[L runtime.Object](client reader[L]) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.TimeoutSeconds = ptr.To(int64(watchSeconds))
			return client.Watch(ctx, options)
		},
	}
}
