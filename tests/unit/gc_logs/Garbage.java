import java.lang.management.ManagementFactory;
import java.util.ArrayDeque;

/** Replaces some megabytes of small arrays, asks for a full collection, and prints what the JVM counted. */
public class Garbage {
    public static void main(String[] args) {
        ArrayDeque<byte[]> kept = new ArrayDeque<>();
        for (int i = 0; i < Integer.parseInt(args[0]); i++) {
            kept.add(new byte[2000]);
            if (kept.size() > 4000) kept.poll();
        }
        System.gc();
        for (var bean : ManagementFactory.getGarbageCollectorMXBeans())
            System.out.printf("%s,%d,%d%n", bean.getName(), bean.getCollectionCount(), bean.getCollectionTime());
    }
}
