package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

var configMapResource = corev1.SchemeGroupVersion.WithResource("configmaps")

// configMaps is what the scenario needs of a client, with the signatures of the typed one.
type configMaps interface {
	Create(ctx context.Context, object *corev1.ConfigMap, options metav1.CreateOptions) (*corev1.ConfigMap, error)
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.ConfigMap, error)
	List(ctx context.Context, options metav1.ListOptions) (*corev1.ConfigMapList, error)
	Update(ctx context.Context, object *corev1.ConfigMap, options metav1.UpdateOptions) (*corev1.ConfigMap, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*corev1.ConfigMap, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
	DeleteCollection(ctx context.Context, options metav1.DeleteOptions, list metav1.ListOptions) error
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

func (c *clients) configMaps(kind, namespace string) (configMaps, error) {
	switch kind {
	case "typed":
		return c.typed.CoreV1().ConfigMaps(namespace), nil
	case "dynamic":
		return untyped{c.dynamic.Resource(configMapResource).Namespace(namespace)}, nil
	}
	return nil, fmt.Errorf("no client %q: say typed or dynamic", kind)
}

// crud makes, reads, changes, watches and deletes, and reads back after each step what it has written.
func crud(ctx context.Context, objects configMaps) error {
	for _, name := range []string{"a", "b", "c"} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}, Data: map[string]string{"k": "1 < 2 & 3"}}
		created, err := objects.Create(ctx, object, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		say("create", summary(created))
		sayObject("get", created.Name, objects, ctx)
	}
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	say("list", summaries(list))
	watcher, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer watcher.Stop()

	object, err := objects.Get(ctx, "a", metav1.GetOptions{})
	if err != nil {
		return err
	}
	stale := object.DeepCopy()
	object.Data["k"] = "updated"
	updated, err := objects.Update(ctx, object, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	say("update", summary(updated))
	sayObject("get", "a", objects, ctx)
	_, err = objects.Update(ctx, stale, metav1.UpdateOptions{})
	say("update a stale object", problem(err))
	_, err = objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	say("create it again", problem(err))
	patched, err := objects.Patch(ctx, "b", types.MergePatchType, []byte(`{"data":{"k":null,"new":"yes"}}`), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	say("patch", summary(patched))
	if err := sayLists(ctx, objects); err != nil {
		return err
	}

	if err := objects.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		return err
	}
	sayObject("get a deleted object", "a", objects, ctx)
	say("delete it again", problem(objects.Delete(ctx, "a", metav1.DeleteOptions{})))
	if err := objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "name in (b,c)"}); err != nil {
		return err
	}
	if list, err = objects.List(ctx, metav1.ListOptions{}); err != nil {
		return err
	}
	say("list after deletecollection", summaries(list))
	return sayEvents(ctx, watcher, 5)
}

// sayLists reads the same objects by selectors and in pages.
func sayLists(ctx context.Context, objects configMaps) error {
	for _, options := range []metav1.ListOptions{
		{LabelSelector: "name in (a,c)"}, {LabelSelector: "name!=a"}, {FieldSelector: "metadata.name=b"},
		{ResourceVersion: "0"}, {Limit: 2},
	} {
		for {
			list, err := objects.List(ctx, options)
			if err != nil {
				return err
			}
			// With resourceVersion 0 a server may answer from its past, so only what is there in any case counts.
			if options.ResourceVersion == "0" {
				say("list any", len(list.Items) > 0)
				break
			}
			say(fmt.Sprintf("list %s%s%d", options.LabelSelector, options.FieldSelector, options.Limit), summaries(list))
			if options.Continue = list.Continue; options.Continue == "" {
				break
			}
		}
	}
	_, err := objects.List(ctx, metav1.ListOptions{FieldSelector: "spec.nothing=1"})
	say("list by a field it does not have", problem(err))
	return nil
}

func sayEvents(ctx context.Context, watcher watch.Interface, count int) error {
	for range count {
		select {
		case <-ctx.Done():
			return errors.New("an event of the watch never came")
		case event, ok := <-watcher.ResultChan():
			if !ok {
				return errors.New("the watch ended early")
			}
			object, err := toConfigMap(event.Object)
			if err != nil {
				return err
			}
			// The collection is deleted in no particular order.
			if event.Type == watch.Deleted && object.Name != "a" {
				say("event DELETED", "b or c")
				continue
			}
			say("event "+string(event.Type), summary(object))
		}
	}
	return nil
}

func sayObject(step, name string, objects configMaps, ctx context.Context) {
	object, err := objects.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		say(step, problem(err))
		return
	}
	say(step, summary(object))
}

func summaries(list *corev1.ConfigMapList) []any {
	items := []any{}
	for i := range list.Items {
		items = append(items, summary(&list.Items[i]))
	}
	return items
}

// untyped gives the dynamic client the signatures of the typed one.
type untyped struct {
	objects dynamic.ResourceInterface
}

func (u untyped) Create(ctx context.Context, object *corev1.ConfigMap, options metav1.CreateOptions) (*corev1.ConfigMap, error) {
	return fromUntyped(u.objects.Create(ctx, toUntyped(object), options))
}

func (u untyped) Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.ConfigMap, error) {
	return fromUntyped(u.objects.Get(ctx, name, options))
}

func (u untyped) List(ctx context.Context, options metav1.ListOptions) (*corev1.ConfigMapList, error) {
	found, err := u.objects.List(ctx, options)
	if err != nil {
		return nil, err
	}
	list := &corev1.ConfigMapList{}
	return list, runtime.DefaultUnstructuredConverter.FromUnstructured(found.UnstructuredContent(), list)
}

func (u untyped) Update(ctx context.Context, object *corev1.ConfigMap, options metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	return fromUntyped(u.objects.Update(ctx, toUntyped(object), options))
}

func (u untyped) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*corev1.ConfigMap, error) {
	return fromUntyped(u.objects.Patch(ctx, name, kind, data, options, subresources...))
}

func (u untyped) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	return u.objects.Delete(ctx, name, options)
}

func (u untyped) DeleteCollection(ctx context.Context, options metav1.DeleteOptions, list metav1.ListOptions) error {
	return u.objects.DeleteCollection(ctx, options, list)
}

func (u untyped) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return u.objects.Watch(ctx, options)
}

func toUntyped(object *corev1.ConfigMap) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return u
}

func fromUntyped(u *unstructured.Unstructured, err error) (*corev1.ConfigMap, error) {
	if err != nil {
		return nil, err
	}
	return toConfigMap(u)
}

func toConfigMap(object runtime.Object) (*corev1.ConfigMap, error) {
	switch object := object.(type) {
	case *corev1.ConfigMap:
		return object, nil
	case *unstructured.Unstructured:
		configMap := &corev1.ConfigMap{}
		return configMap, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, configMap)
	case *metav1.Status:
		return nil, &apierrors.StatusError{ErrStatus: *object}
	}
	text, _ := json.Marshal(object)
	return nil, fmt.Errorf("not a ConfigMap: %s", text)
}
